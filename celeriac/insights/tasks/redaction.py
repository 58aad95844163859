"""Redaction: the values of arguments that a role declares sensitive are shown nowhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from celeriac.errors import BadValue
from celeriac.store import sensitive
from celeriac.store.encoding import Unfit, json_text
from celeriac.store.redact import HIDDEN, without
from celeriac.store.sensitive import Sensitive, without_masks

OF_ROLES = text("""
SELECT role, definition -> 'sensitive' AS names, parameters FROM celeriac.roles
WHERE role = ANY (CAST(:roles AS text[])) AND definition -> 'sensitive' <> '[]'
""")

NAMED = text("""
SELECT role, name FROM celeriac.roles, unnest(CAST(:names AS text[])) AS name
WHERE (CAST(:role AS text) IS NULL OR role = :role) AND definition -> 'sensitive' <> '[]'
    AND (jsonb_exists(definition -> 'sensitive', name) OR EXISTS (
        SELECT FROM jsonb_array_elements(parameters) AS p
        WHERE p ->> 'kind' = 'VAR_KEYWORD' AND jsonb_exists(definition -> 'sensitive', p ->> 'name')
    ) AND NOT EXISTS (SELECT FROM jsonb_array_elements(parameters) AS p WHERE p ->> 'name' = name))
ORDER BY role, name LIMIT 1
""")


def of_role(names: Collection[str] | None, parameters: Any) -> Sensitive | None:
    """Build it from the columns of `roles`."""
    return sensitive.of(names, [(one["name"], one.get("kind", "POSITIONAL_OR_KEYWORD")) for one in parameters or ()])


def of_roles(connection: Connection, roles: Collection[str]) -> dict[str, Sensitive]:
    """Return the sensitive arguments by role, for those of these roles that have some."""
    rows = connection.execute(OF_ROLES, {"roles": sorted(roles)}).all() if roles else ()
    made = {row.role: of_role(row.names, row.parameters) for row in rows}
    return {role: one for role, one in made.items() if one is not None}


def redacted(task: Mapping[str, Any], secret: Sensitive | None) -> dict[str, Any]:
    """Redact a task with its call. Texts are searched for the values, as a task may predate their declaration."""
    if secret is None:
        return dict(task)
    values = secret.values(task["args"], task["kwargs"])
    outcome = {name: task[name] for name in ("result", "progress") if name in task}
    if secret.hides_results(task.get("headers")):
        outcome = {name: None if value is None else HIDDEN for name, value in outcome.items()}
    outcome = {name: without(values, secret.within(value)) for name, value in outcome.items()}
    said = {"error_message": without(values, task["error_message"])} if "error_message" in task else {}
    said |= {"headers": without(values, without_masks(task["headers"]))} if "headers" in task else {}
    args, kwargs = secret.call(task["args"], task["kwargs"])
    return {**task, "args": args, "kwargs": kwargs, **outcome, **said}


def without_calls(headers: Any) -> Any:
    """Hide the calls in a message's headers: links may have roles with secrets, and their own rows show the calls."""
    if isinstance(headers, Mapping):
        is_link = "task" in headers
        kept = {name: without_calls(value) for name, value in headers.items()}
        return kept | ({"args": HIDDEN, "kwargs": HIDDEN} if is_link else {})
    return [without_calls(one) for one in headers] if isinstance(headers, list) else headers


def without_progress(connection: Connection, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Hide the progress of tasks whose role has secrets: lists do not read the calls whose values to search for."""
    roles = {task["role"] for task in tasks if task["progress"] is not None}
    secret = of_roles(connection, roles)
    hidden = {"progress": HIDDEN}
    return [task | hidden if task["role"] in secret and task["progress"] is not None else task for task in tasks]


def schedule(row: Mapping[str, Any], secret: Sensitive | None) -> dict[str, Any]:
    """Redact a schedule, or parts of one."""
    if secret is None:
        return dict(row)
    of_jobs = {name: row[name] for name in ("declared", "differs") if row.get(name) is not None}
    kwargs = {"kwargs": secret.kwargs(row["kwargs"])} if row.get("kwargs") is not None else {}
    return {**row, **{name: schedule(secret.within(job), secret) for name, job in of_jobs.items()}, **kwargs}


def schedules(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Redact schedules, or changes of them."""
    secret = of_roles(connection, {row["target"] for row in rows if row["kind"] == "task"})
    return [schedule(row, secret.get(row["target"])) for row in rows]


def refuse_sensitive(connection: Connection, names: Collection[str], role: str | None = None) -> None:
    """Raise BadValue for a filter by an unfit name, or by a sensitive argument: its matches would reveal the value."""
    try:
        json_text(list(names))
    except Unfit as error:
        raise BadValue(f"arguments={list(names)!r:.100}: no row has such names: {error}") from None
    row = connection.execute(NAMED, {"names": sorted(names), "role": role}).first() if names else None
    if row is not None:
        raise BadValue(f"arg.{row.name}: {row.role} keeps it secret, so no list can be narrowed by it")
