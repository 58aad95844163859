"""Whatever a surface lets somebody name has a test of odd names; what can be named is derived from the surfaces."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import click
import pytest

from celeriac.app import Celeriac
from celeriac.cli import main
from celeriac.dashboard import app as dashboard
from celeriac.operate import enqueuers, failures, policies, silences, tokens, views, workers, workflows
from celeriac.roles.bounds import CALL
from celeriac.roles.role import Role
from celeriac.schedules import operate as schedules
from celeriac.schedules.decide import Entry
from celeriac.store.routines.apply import scripts
from tests.api.described import document
from tests.dashboard import test_odd_kinds as kinds
from tests.dashboard import test_odd_names as ids
from tests.dashboard import test_odd_schedules as of_schedules
from tests.processes import ROOT

#: Each kind of thing that has a name: the test of odd ones.
TESTED: Mapping[str, Callable[..., None]] = {
    "task": ids.test_an_odd_id_is_the_same_task_on_every_surface,
    "schedule": of_schedules.test_each_surface_changes_switches_runs_and_shows_the_schedule_of_that_name_alone,
    "account": kinds.test_an_account,
    "key": kinds.test_a_lock_key_and_a_unique_key,
    "role": kinds.test_a_role,
    "queue": kinds.test_a_queue_of_a_role_and_its_lane,
    "worker": kinds.test_a_worker,
    "token": kinds.test_a_token,
    "login": kinds.test_a_login,
    "view": kinds.test_a_view,
    "alert": kinds.test_a_subject_of_alerts,
    "workflow": kinds.test_a_workflow,
    "dead letter": kinds.test_a_dead_letter_s_task,
}

#: The words by which surfaces take a name, and of which kind.
NAMED: Mapping[str, str] = {
    "task": "task", "tasks": "task", "ids": "task", "task_id": "task",
    "schedule": "schedule", "name": "schedule",
    "account": "account", "accounts": "account",
    "lock_key": "key", "unique_key": "key", "key": "key", "keys": "key",
    "role": "role", "roles": "role", "aliases": "role", "target": "role", "for_role": "role", "old": "role",
    "new": "role", "others": "role", "queue": "queue", "queues": "queue", "worker": "worker", "worker_id": "worker",
    "by": "token", "enqueued_by": "token", "owner": "view", "login": "login", "subject": "alert",
    "workflow": "workflow", "of": "workflow", "letter": "dead letter",
}  # fmt: skip

#: Texts that name nothing which somebody makes up, and what they are.
OTHERWISE: Mapping[str, str] = {
    "why": "a sentence", "note": "a sentence", "description": "a sentence", "error": "a part of a text",
    "q": "a line of the search, or any name", "was": "a line of the search", "after": "a place in a list",
    "to": "an address", "host": "an address", "hostname": "an address", "proxy": "an address", "logins": "an address",
    "number": "a number", "job": "a number", "job_ids": "numbers", "priority": "a range", "priorities": "a range",
    "newer": "a time", "span": "a time", "for": "a time", "seen": "a time", "until": "a time", "eta": "a time",
    "timeout": "a time", "hard_timeout": "a time", "soft": "a time", "hard": "a time",
    "expression": "a time", "cron_expression": "a time", "timezone": "a time zone", "zone": "a time zone",
    "rate": "a rate", "rate_limit": "a rate", "weight": "a number", "cap": "a number",
    "fingerprint": "a hash", "failure": "a hash", "token": "a secret", "presented": "a secret", "code": "a secret",
    "kind": "a word of ours", "via": "a word of ours", "action": "a word of ours", "state": "a word of ours",
    "theme": "a word of ours", "system": "a word of ours", "state_code": "a state",
    "enabled": "yes or no", "goes_on": "yes or no", "sure": "yes or no", "version": "a release",
    "fair_by": "the handler's parameters", "lock_by": "the handler's parameters",
    "unique_by": "the handler's parameters", "sensitive": "the handler's parameters",
    "arguments": "the handler's parameters", "arg.NAME": "the handler's parameters", "kwargs": "JSON",
    "enabled_by": "a variable of the environment", "role_prefix": "Postgres' own names of roles",
    "Idempotency-Key": "a header, which is hashed", "traceparent": "a header", "tracestate": "a header",
}  # fmt: skip


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return document()["components"]["schemas"][name] if name else schema


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a schema and its alternatives and items."""
    whole = _resolved(schema)
    yield whole
    for part in (*whole.get("anyOf", ()), *whole.get("oneOf", ()), *filter(None, [whole.get("items")])):
        yield from _parts(part)


def _is_text(schema: dict[str, Any]) -> bool:
    texts = [part for part in _parts(schema) if part.get("type") == "string"]
    return any(not part.keys() & {"enum", "const", "format"} for part in texts)


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    for name, field in (pair for part in _parts(schema) for pair in part.get("properties", {}).items()):
        yield from [name] if _is_text(field) else ()
        yield from _fields(field)


def of_the_api() -> Iterator[str]:
    """Yield path parameters, queries and fields of bodies that take a free text."""
    for operation in (one for methods in document()["paths"].values() for one in methods.values()):
        yield from (one["name"] for one in operation.get("parameters", ()) if _is_text(one["schema"]))
        for content in operation.get("requestBody", {}).get("content", {}).values():
            yield from _fields(content["schema"])


def of_commands(command: click.Command = main) -> Iterator[str]:
    """Yield arguments and options of every command that take a free text."""
    for sub in command.commands.values() if isinstance(command, click.Group) else ():
        yield from of_commands(sub)
    yield from (str(one.name) for one in command.params if isinstance(one.type, click.types.StringParamType))


_FIELD = re.compile(r"<(?:input|textarea|select)\b[^>]*>")


def of_the_dashboard() -> Iterator[str]:
    """Yield the routes' parameters and the fields that people fill in, but for numbers and switches."""
    for route in (route for router in dashboard.ROUTERS for route in router.routes):
        yield from re.findall(r"\{(\w+)", route.path)
    for page in sorted((ROOT / "celeriac" / "dashboard").rglob("*.html")):
        for field in _FIELD.findall(page.read_text()):
            if (name := re.search(r'\bname="(\w+)"', field)) and not re.search(r'type="(number|checkbox)"', field):
                yield name[1]


def of_sql() -> Iterator[str]:
    """Yield the parameters of functions that the pages show, and the columns that one writes by hand."""
    shown = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    written = "".join(scripts())
    for name in sorted(set(re.findall(r"celeriac\.(\w+)\(", shown))):
        for signature in re.findall(rf"FUNCTION celeriac\.{name}\(([^)]*)\)", written):
            yield from re.findall(r"\b(\w+) text\b", signature)


def of_python() -> Iterator[str]:
    """Yield the parameters of operators' verbs, a role's options, a schedule's and a call's."""
    for module in (enqueuers, failures, policies, schedules, silences, tokens, views, workers, workflows):
        for name, verb in inspect.getmembers(module, inspect.isfunction):
            if verb.__module__ == module.__name__ and not name.startswith("_"):
                yield from _texts(verb)
    for name, verb in inspect.getmembers(Celeriac, inspect.isfunction):
        if verb.__module__ == Celeriac.__module__ and not name.startswith("_"):
            yield from _texts(verb)
    yield from (one.name for one in fields(Role) if re.search(r"\b(str|Key)\b", str(one.type)) and one.name != "lane")
    yield from (option for option, rule in CALL.items() if rule.fits("a text"))
    yield from _texts(Entry)


def _texts(verb: Any) -> Iterator[str]:
    for one in inspect.signature(verb).parameters.values():
        if re.match(r"(str|Name|list\[str\]|Collection\[str\]|Iterable\[str\])\b", str(one.annotation)):
            yield one.name


SURFACES = {
    "Python": of_python, "SQL": of_sql, "HTTP": of_the_api, "command line": of_commands, "dashboard": of_the_dashboard,
}  # fmt: skip


@pytest.mark.parametrize("surface", SURFACES)
def test_whatever_can_be_named_has_a_test_of_odd_names(surface: str) -> None:
    words = {*SURFACES[surface]()}
    assert len(words) > 5
    assert sorted(words - NAMED.keys() - OTHERWISE.keys()) == [], "say of which kind they are, and test odd names of it"


def test_the_list_has_nothing_that_no_surface_takes() -> None:
    words = {word for surface in SURFACES.values() for word in surface()}
    assert sorted({*NAMED, *OTHERWISE} - words) == []
    assert sorted(NAMED.keys() & OTHERWISE.keys()) == []
    assert {*NAMED.values()} == {*TESTED}
