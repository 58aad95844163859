"""Show how to get a page's content by SQL, HTTP and command line, with the page's filters or subject."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from celeriac.dashboard import words
from celeriac.errors import BadValue
from celeriac.insights import ARGUMENT, as_argument
from celeriac.insights.tasks.conditions import CONDITIONS, ends
from celeriac.store.shell import argument, word
from celeriac.store.states import WORDS

#: The query for a page's rows; `{}` is the place of the filter.
LISTS: Final = {
    "overview": "SELECT * FROM celeriac.alerts ORDER BY firing_since",
    "tasks": "SELECT * FROM celeriac.worker_tasks{} ORDER BY id DESC LIMIT 50",
    "roles": "SELECT * FROM celeriac.v_worker_capacity{} ORDER BY role",
    "accounts": "SELECT * FROM celeriac.account_policies ORDER BY account",
    "locks": "SELECT * FROM celeriac.locks ORDER BY lock_key",
    "unique-keys": "SELECT role, unique_key, id FROM celeriac.tasks WHERE unique_key IS NOT NULL{}"
    " ORDER BY role, unique_key LIMIT 50",
    "workers": "SELECT * FROM celeriac.workers ORDER BY last_heartbeat_at DESC",
    "schedules": "SELECT * FROM celeriac.scheduled_jobs WHERE kind = 'task' ORDER BY name",
    "failures": "SELECT role, split_part(error_message, E'\\n', 1) AS error, count(*) FROM celeriac.worker_tasks"
    " WHERE status = 'failed'{} GROUP BY 1, 2 ORDER BY 3 DESC",
    "bulk": "SELECT * FROM celeriac.bulk_actions ORDER BY id DESC",
    "decisions": "SELECT * FROM celeriac.passes{} ORDER BY id DESC LIMIT 50",
    "capacity": "SELECT * FROM celeriac.v_worker_capacity{} ORDER BY role",
    "workflows": "SELECT workflow, count(*) FROM celeriac.worker_tasks WHERE workflow IS NOT NULL GROUP BY 1",
    "dead-letters": "SELECT id, at, name, sender, reason, size FROM celeriac.dead_letters{} ORDER BY id DESC LIMIT 50",
    "system": "SELECT * FROM celeriac.scheduled_jobs WHERE kind <> 'task' ORDER BY name",
    "alerts": "SELECT * FROM celeriac.alerts ORDER BY firing_since",
    "audit": "SELECT * FROM celeriac.audit{} ORDER BY id DESC LIMIT 50",
}

#: For the page of one thing: the command, the path, the query; `{}` is its name.
ONE: Final = {
    "tasks": ("celeriac tasks show {}", "/api/tasks/{}", "SELECT * FROM celeriac.worker_tasks WHERE id = {}"),
    "roles": (
        "celeriac roles capacity {}", "/api/roles/{}", "SELECT * FROM celeriac.v_worker_capacity WHERE role = {}",
    ),
    "accounts": (
        "celeriac tasks list --account {}", "/api/tasks?account={}",
        "SELECT * FROM celeriac.worker_tasks WHERE account = {} ORDER BY id DESC LIMIT 50",
    ),
    "locks": (
        "celeriac locks show {}", "/api/locks/queue?lock_key={}",
        "SELECT * FROM celeriac.behind WHERE lock_key = {} ORDER BY priority DESC, due_at, id",
    ),
    "workers": (
        "celeriac tasks list --worker-id {}", "/api/tasks?worker_id={}",
        "SELECT * FROM celeriac.workers WHERE worker_id = {}",
    ),
    "schedules": (
        "celeriac schedules list", "/api/admin/scheduled-jobs",
        "SELECT * FROM celeriac.scheduled_jobs WHERE name = {}",
    ),
    "bulk": ("celeriac bulks show {}", "/api/bulk/{}", "SELECT * FROM celeriac.bulk_actions WHERE id = {}"),
    "workflows": (
        "celeriac workflows show {}", "/api/workflows/{}",
        "SELECT * FROM celeriac.worker_tasks WHERE workflow = {} ORDER BY id",
    ),
    "dead-letters": (
        "celeriac dead-letters list", "/api/dead-letters/{}", "SELECT * FROM celeriac.dead_letters WHERE id = {}",
    ),
}  # fmt: skip

#: For each filter of a list: the command's option, the path's parameter, the query's condition; None if there is none.
FILTERS: Final[Mapping[str, Mapping[str, tuple[str | None, str | None, str | None]]]] = {
    "tasks": {one.page: (one.option, one.name, one.sql) for one in CONDITIONS},
    "failures": {
        "role": ("--role", "role", "role = {}"),
        "since": ("--since", "since", "completed_at > now() - {} * interval '1 second'"),
        "state": ("--state", "state", None),
    },
    "capacity": {"role": ("", None, "role = {}")},
    "decisions": {"role": ("", None, "role = {}")},
    "unique-keys": {"role": ("", "role", "role = {}")},
    "dead-letters": {"name": ("--name", "name", "name = {}")},
    "audit": {
        **{name: (f"--{name}", name, f"{name} = {{}}") for name in ("by", "via", "action", "kind", "target")},
        "newer": ("--newer-than", "newer_than", "at > now() - {} * interval '1 second'"),
    },
}  # fmt: skip

#: Filters that are times, given in seconds elsewhere.
TIMES = ("newer", "older", "since")


def also(name: str, of: str, asked: Mapping[str, str], usual: tuple[str | None, str | None]) -> list[tuple[str, str]]:
    """Return the ways, each with its text. `usual`: the page's command and path without filters."""
    if of and name in ONE:
        command, path, query = ONE[name]
        number = of if of.isascii() and of.isdigit() and name in ("tasks", "bulk", "dead-letters") else _text(of)
        return [
            ("SQL", query.format(number)), ("API", path.format(quote(of, safe=""))),
            ("CLI", command.format(word(of) if " --" in command else argument(of))),
        ]  # fmt: skip
    values = {key: _as_others_write(key, value) for key, value in asked.items()}
    ways = [
        ("SQL", _query(name, values)),
        ("API", _path(name, values, usual[1])),
        ("CLI", _command(name, values, usual[0])),
    ]
    return [(kind, text) for kind, text in ways if text is not None]


def _as_others_write(key: str, value: str) -> str:
    if key in TIMES:
        return f"{words.seconds(value) or 0:g}"
    return words.account_of(value) if key == "account" else value


def _each(key: str, value: str) -> list[str]:
    """Return a filter's values: several states may be given at once."""
    return value.replace(",", " ").split() if key == "state" else [value]


def _query(name: str, asked: Mapping[str, str]) -> str | None:
    """Return the query; None if it cannot express a filter, or a value is invalid."""
    try:
        meant = [(of[2], _value(key, asked[key])) for key, of in FILTERS.get(name, {}).items() if key in asked]
    except BadValue:
        return None
    if any(condition is None for condition, _ in meant):
        return None
    parts = [str(condition).format(value) for condition, value in meant]
    parts += [f"kwargs -> {_text(key)} = {_text(value)}::jsonb" for key, value in _arguments(asked)]
    query, condition = LISTS.get(name), " AND ".join(parts)
    if query is None or not condition:
        return query and query.replace("{}", "")
    return query.replace("{}", f" {'AND' if ' WHERE ' in query else 'WHERE'} {condition}")


def _path(name: str, asked: Mapping[str, str], usual: str | None) -> str | None:
    """Return the path; None if it does not accept a filter."""
    known = FILTERS.get(name, {})
    if usual and "role" in asked and name in ("decisions", "capacity"):
        role = quote(asked["role"], safe="")
        return usual.format(role=role) if "{role}" in usual else f"{usual}/{role}"
    if usual is None or "{" in usual or any(known[key][1] is None for key in known if key in asked):
        return None
    query = [(str(known[key][1]), one) for key, value in asked.items() if key in known for one in _each(key, value)]
    query += [(f"{ARGUMENT}{key}", value) for key, value in _arguments(asked)]
    return usual + (f"?{urlencode(query)}" if query else "")


def _command(name: str, asked: Mapping[str, str], usual: str | None) -> str | None:
    """Return the command; None if it does not accept a filter."""
    known = FILTERS.get(name, {})
    if usual is None or any(known[key][0] is None for key in known if key in asked):
        return None
    options = [
        f"{known[key][0]} {word(one)}" if known[key][0] else argument(one)
        for key, value in asked.items() if key in known for one in _each(key, value)
    ]  # fmt: skip
    options += [f"--arg {word(f'{key}={value}')}" for key, value in _arguments(asked)]
    return " ".join([usual, *options])


def _arguments(asked: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return filters by arguments, their values as JSON."""
    texts = {key.removeprefix(ARGUMENT): value for key, value in asked.items() if key.startswith(ARGUMENT)}
    return [(key, json.dumps(as_argument(value))) for key, value in texts.items()]


def _value(key: str, value: str) -> str:
    if key == "state":
        meant = [status for word in _each(key, value) for status in WORDS.get(word, (word,))]
        return f"({', '.join(map(_text, dict.fromkeys(meant)))})"
    if key == "priority":
        low, high = (("" if end is None else str(end)) for end in ends(key, value))
        return f"{low or 'NULL'}, {high or 'NULL'}, '[]'"
    return value if key in TIMES else _text(value)


def _text(value: str) -> str:
    """Return a literal of SQL, valid with any `standard_conforming_strings`."""
    quoted = value.replace("'", "''")
    return f"E'{quoted.replace(chr(92), chr(92) * 2)}'" if chr(92) in quoted else f"'{quoted}'"
