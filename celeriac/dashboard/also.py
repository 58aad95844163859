"""Other ways to a page's content, with its filters or subject: SQL, HTTP, command line."""

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

#: For each page: the query for its rows, with `{}` in the place of the filter; command and path without a filter.
LISTS: Final = {
    "overview": ("SELECT * FROM celeriac.alerts ORDER BY firing_since", "celeriac status", "/api/alerts"),
    "tasks": (
        "SELECT * FROM celeriac.worker_tasks{} ORDER BY id DESC LIMIT 50", "celeriac tasks list", "/api/tasks",
    ),
    "roles": ("SELECT * FROM celeriac.v_worker_capacity{} ORDER BY role", "celeriac status", "/api/roles"),
    "accounts": (
        "SELECT * FROM celeriac.account_policies ORDER BY account", "celeriac accounts list", "/api/accounts",
    ),
    "locks": ("SELECT * FROM celeriac.locks ORDER BY lock_key", "celeriac locks list", "/api/locks"),
    "unique-keys": (
        "SELECT role, unique_key, id FROM celeriac.tasks WHERE unique_key IS NOT NULL{}"
        " ORDER BY role, unique_key LIMIT 50", "celeriac locks unique-keys", "/api/unique-keys",
    ),
    "workers": (
        "SELECT * FROM celeriac.workers ORDER BY last_heartbeat_at DESC", "celeriac workers list", "/api/workers",
    ),
    "schedules": (
        "SELECT * FROM celeriac.scheduled_jobs WHERE kind = 'task' ORDER BY name", "celeriac schedules list",
        "/api/admin/scheduled-jobs",
    ),
    "failures": (
        "SELECT role, split_part(error_message, E'\\n', 1) AS error, count(*) FROM celeriac.worker_tasks"
        " WHERE status = 'failed'{} GROUP BY 1, 2 ORDER BY 3 DESC", "celeriac failures list", "/api/failures",
    ),
    "bulk": ("SELECT * FROM celeriac.bulk_actions ORDER BY id DESC", "celeriac bulks list", "/api/bulk"),
    "decisions": (
        "SELECT * FROM celeriac.passes{} ORDER BY id DESC LIMIT 50", "celeriac roles decisions",
        "/api/roles/{role}/passes",
    ),
    "capacity": (
        "SELECT * FROM celeriac.v_worker_capacity{} ORDER BY role", "celeriac roles capacity", "/api/tasks/capacity",
    ),
    "workflows": (
        "SELECT workflow, count(*) FROM celeriac.worker_tasks WHERE workflow IS NOT NULL GROUP BY 1",
        "celeriac workflows show", "/api/workflows/{workflow}",
    ),
    "dead-letters": (
        "SELECT id, at, name, sender, reason, size FROM celeriac.dead_letters{} ORDER BY id DESC LIMIT 50",
        "celeriac dead-letters list", "/api/dead-letters",
    ),
    "system": (
        "SELECT * FROM celeriac.scheduled_jobs WHERE kind <> 'task' ORDER BY name", "celeriac doctor", "/api/doctor",
    ),
    "alerts": ("SELECT * FROM celeriac.alerts ORDER BY firing_since", "celeriac alerts list", "/api/alerts"),
    "audit": ("SELECT * FROM celeriac.audit{} ORDER BY id DESC LIMIT 50", "celeriac audit", "/api/audit"),
}  # fmt: skip

#: For the page of one thing: command, path and query, with `{}` in the place of its name.
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

Filters = Mapping[str, tuple[str | None, str | None, str | None]]

#: For each filter of a list: the command's option, the path's parameter, the query's condition; None if there is none.
FILTERS: Final[Mapping[str, Filters]] = {
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

#: Filters that are times, which the other ways take in seconds.
TIMES = ("newer", "older", "since")


def also(name: str, of: str, asked: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return SQL, API and CLI, each with its text, unless it cannot express a filter. `of`: the thing, on its page."""
    if of and name in ONE:
        command, path, query = ONE[name]
        number = of if of.isascii() and of.isdigit() and name in ("tasks", "bulk", "dead-letters") else _text(of)
        return [
            ("SQL", query.format(number)), ("API", path.format(quote(of, safe=""))),
            ("CLI", command.format(word(of) if " --" in command else argument(of))),
        ]  # fmt: skip
    if name not in LISTS:
        return []
    query, command, path = LISTS[name]
    values = {key: _as_others_write(key, value) for key, value in asked.items()}
    known = {key: FILTERS[name][key] for key in values if key in FILTERS.get(name, {})}
    ways = [("SQL", _query(query, known, values)), ("API", _path(name, path, known, values)),
            ("CLI", _command(command, known, values))]  # fmt: skip
    return [(kind, text) for kind, text in ways if text is not None]


def _as_others_write(key: str, value: str) -> str:
    if key in TIMES:
        return f"{words.seconds(value) or 0:g}"
    return words.account_of(value) if key == "account" else value


def _each(key: str, value: str) -> list[str]:
    """Return a filter's values: several states may be given at once."""
    return value.replace(",", " ").split() if key == "state" else [value]


def _query(query: str, known: Filters, asked: Mapping[str, str]) -> str | None:
    """Return the query; None if it cannot express a filter, or a value is invalid."""
    parts = []
    for key, (_, _, condition) in known.items():
        try:
            value = _value(key, asked[key])
        except BadValue:
            return None
        if condition is None:
            return None
        parts.append(condition.format(value))
    parts += [f"kwargs -> {_text(key)} = {_text(value)}::jsonb" for key, value in _arguments(asked)]
    begins = " AND " if " WHERE " in query else " WHERE "
    return query.replace("{}", begins + " AND ".join(parts) if parts else "")


def _path(name: str, path: str, known: Filters, asked: Mapping[str, str]) -> str | None:
    """Return the path; None if it does not accept a filter."""
    if "role" in asked and name in ("decisions", "capacity"):
        role = quote(asked["role"], safe="")
        return path.format(role=role) if "{role}" in path else f"{path}/{role}"
    if "{" in path or any(parameter is None for _, parameter, _ in known.values()):
        return None
    query = [(str(of[1]), one) for key, of in known.items() for one in _each(key, asked[key])]
    query += [(f"{ARGUMENT}{key}", value) for key, value in _arguments(asked)]
    return path + (f"?{urlencode(query)}" if query else "")


def _command(command: str, known: Filters, asked: Mapping[str, str]) -> str | None:
    """Return the command; None if it does not accept a filter."""
    if any(option is None for option, _, _ in known.values()):
        return None
    options = [
        f"{option} {word(one)}" if option else argument(one)
        for key, (option, _, _) in known.items() for one in _each(key, asked[key])
    ]  # fmt: skip
    options += [f"--arg {word(f'{key}={value}')}" for key, value in _arguments(asked)]
    return " ".join([command, *options])


def _arguments(asked: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the filters by arguments, with their values as JSON."""
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
