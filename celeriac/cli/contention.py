"""Contention: accounts beside their fair shares, why a role waits, and lock keys with the tasks that wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from celeriac import insights
from celeriac.cli import output
from celeriac.cli.group import FindApp, command
from celeriac.insights import AccountRole, AccountShare, Lock

_SHARES = ("account", "waiting", "parked", "oldest", "claimed", "running", "fair", "held", "weight", "cap", "paused")
_LOCKS = ("lock_key", "task", "role", "status", "worker_id", "held", "heartbeat", "waiting", "oldest")
_UNIQUE = ("role", "unique_key", "task", "status", "account", "created_at", "due_at")
_PASSES = ("id", "at", "role", "by", "repeated", "free", "accounts", "capped", "given", "why", "cursor", "took_ms")
_QUEUE = ("place", "id", "role", "account", "priority", "waits")


@command
@click.argument("role", required=False)
@click.option("--limit", default=30, show_default=True, help="Accounts.")
def top(find: FindApp, /, role: str | None, limit: int) -> None:
    """List accounts beside their fair share, of ROLE or of all roles together; those that lack most come first."""
    with find().database.reading() as connection:
        now = insights.clock(connection)
        shares = insights.shares(connection, role, limit=limit)
        turns = None if role is None else insights.turns(connection, role)
        depths = [] if role is None else insights.depth(connection, role)
    more = [] if shares.is_all else ["there are more accounts than were read or are shown"]
    if turns is None:
        output.tell(shares, [*output.table([_share(share, now) for share in shares.accounts], _SHARES), *more])
        return
    rows = [_share(share, now) | {"rounds": turns.rounds.get(share.account, 0)} for share in shares.accounts]
    after = [] if turns.cursor is None else [f"the next pass begins after {turns.cursor!r}"]
    after += [
        f"where its window of {one.window:,} is full, a newcomer waits {one.newcomer_seconds:.1f} s for what is claimed"
        for one in depths
        if one.newcomer_seconds is not None
    ]
    fields = asdict(shares) | asdict(turns)
    output.tell(fields, [*output.table(rows, (*_SHARES, "rounds")), *after, *more])


@command
@click.argument("role")
def waits(find: FindApp, /, role: str) -> None:
    """Show why the tasks of ROLE wait, reason by reason: how many, and when the next pass takes some."""
    app = find()
    with app.database.reading() as connection:
        reasons = insights.waits_of(connection, role, app.probe)
    output.tell(reasons, [_wait(one) for one in reasons] or "nothing waits")


@command
@click.option("--limit", default=30, show_default=True)
def locks(find: FindApp, /, limit: int) -> None:
    """List lock keys that are held or waited for, by whom and since when."""
    with find().database.reading() as connection:
        page = insights.locks(connection, limit=limit)
    more = [] if page.is_all else ["there are more keys"]
    output.tell(page, [*output.table([_lock(lock) for lock in page.locks], _LOCKS), *more])


@command
@click.argument("key")
@click.option("--limit", default=30, show_default=True)
def lock(find: FindApp, /, key: str, limit: int) -> None:
    """Show which task holds a lock KEY, and which wait for it, in order."""
    with find().database.reading() as connection:
        held, queue = insights.lock(connection, key), insights.queue_of(connection, key, limit=limit)
    output.tell({"lock": held, "queue": queue}, _queue(held, queue))


@command
@click.argument("role", required=False)
@click.option("--limit", default=30, show_default=True)
def unique_keys(find: FindApp, /, role: str | None, limit: int) -> None:
    """Show the unique keys that are taken, of ROLE or of all roles, each with its unfinished task."""
    with find().database.reading() as connection:
        keys = insights.unique_keys(connection, role, limit=limit)
    more = ["there may be more with --limit"] if len(keys) == limit else []
    output.tell(keys, [*output.table([asdict(one) for one in keys], _UNIQUE), *more])


@command
@click.argument("account")
def account(find: FindApp, /, account: str) -> None:
    """Show an ACCOUNT role by role: the tasks it holds, its oldest tasks, the slots passes gave it."""
    with find().database.reading() as connection:
        now = insights.clock(connection)
        roles, held = insights.account_roles(connection, account), insights.account_holdings(connection, account)
        oldest, received = insights.account_oldest(connection, account), insights.received_by(connection, account)
    tables = [
        output.table([_role(one, now) for one in roles], _ROLES),
        output.table([asdict(one) for one in held], ("id", "role", "worker_id", "claimed_at", "started_at")),
        output.table([asdict(one) for one in oldest], ("id", "role", "due_at", "parked")),
    ]
    headings = ("has of each role", "holds", "has that is due, the oldest first")
    lines = [line for what, table in zip(headings, tables, strict=True) for line in (f"What it {what}:", *table)]
    newest = "" if received.is_all else ", of the newest passes alone"
    lines.append(f"Passes gave it {received.slots:,} slots within an hour{newest}; {received.fair:,.1f} would be fair.")
    output.tell({"account": account, "roles": roles, "held": held, "oldest": oldest, "received": received}, lines)


_ROLES = ("role", "ready", "later", "parked", "oldest", "claimed", "running", "completed", "failed")


def _role(role: AccountRole, now: datetime) -> dict[str, Any]:
    counts = {name: output.count(getattr(role, name)) for name in ("ready", "later", "parked")}
    return asdict(role) | counts | {"oldest": _age(role.oldest_due, now)}


def _age(due: datetime | None, now: datetime) -> str | None:
    return output.age(None if due is None else max(0.0, (now - due.astimezone(UTC)).total_seconds()))


def _share(share: AccountShare, now: datetime) -> dict[str, Any]:
    return {
        "account": share.account, "waiting": output.count(share.waiting), "oldest": _age(share.oldest_due, now),
        "parked": output.count(share.parked), "claimed": share.claimed, "running": share.running,
        "fair": f"{share.fair:.1f} ({share.fair_share:.0%})", "held": f"{share.held} ({share.held_share:.0%})",
        "weight": share.weight, "cap": share.cap, "paused": "paused" if share.paused else None,
    }  # fmt: skip


def _wait(one: insights.Waits) -> str:
    until = f", at {one.until:%H:%M:%S %Z}" if one.until else ""
    return f"{output.count(one.n):>9}  {one.says}{until}"


def _lock(lock: Lock) -> dict[str, Any]:
    heartbeat = output.age(lock.heartbeat_age)
    return {
        "lock_key": lock.lock_key, "task": lock.task, "role": lock.role, "status": lock.status or "free",
        "worker_id": lock.worker_id, "held": output.age(lock.held_seconds),
        "heartbeat": f"{heartbeat}, stale" if lock.is_stale else heartbeat, "waiting": output.count(lock.waiting),
        "oldest": output.age(lock.oldest_wait_seconds),
    }  # fmt: skip


def _queue(lock: Lock, queue: list[insights.WaitingTask]) -> Iterator[str]:
    yield from output.table([_lock(lock)], _LOCKS)
    yield ""
    rows = [
        {name: getattr(one, name) for name in _QUEUE[:-1]} | {"waits": output.age(one.waits_seconds)} for one in queue
    ]
    yield from output.table(rows, _QUEUE)
    if left := lock.waiting.n - len(queue):
        yield f"{'' if lock.waiting.exact else 'at least '}{left:,} more with --limit"


@command
@click.argument("role", required=False)
@click.option("--limit", default=20, show_default=True)
@click.option("--before", type=int, help="The last id of the page before.")
def decisions(find: FindApp, /, role: str | None, limit: int, before: int | None) -> None:
    """Show what passes saw and gave, of ROLE or of all roles; newest first."""
    with find().database.reading() as connection:
        rows = insights.passes(connection, role, limit=limit, before=before)
    output.tell(rows, output.table([_pass(row) for row in rows], _PASSES))


def _pass(row: dict[str, Any]) -> dict[str, Any]:
    columns = {"accounts": len(row["claimants"]), "given": sum(row["given"].values()), "why": row["why_nothing"]}
    return row | columns | {"cursor": f"{row['cursor_before']} → {row['cursor_after']}"}
