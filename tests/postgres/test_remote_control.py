"""Remote control does what the settings let whoever may write to Redis, and leaves a trail."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from celery.app.control import Control as StockControl
from celery.apps.worker import Worker as StockWorker

from celeriac import Celeriac
from celeriac.operate import sealed
from celeriac.settings import REMOTE, Settings
from celeriac.worker import remote
from celeriac.worker.controller import Worker
from celeriac.worker.panel import Panel
from tests.processes import Rows, until

KEY = "a key that nobody has"

#: A command of each level.
COMMANDS = {"look": "ping", "act": "pool_grow", "store": "rate_limit"}


def ask(app: Celeriac, command: str, **arguments: Any) -> Any:
    """What a worker of this app answers."""
    panel = Panel(SimpleNamespace(app=app, hostname="celery@here"))
    handlers = panel.guarded({name: lambda state, /, **given: {"ok": given} for name in COMMANDS.values()})  # noqa: ARG005
    return handlers[command](None, **arguments)


@pytest.mark.parametrize(
    ("level", "lets"), [("look", ["look"]), ("act", ["look", "act"]), ("store", ["look", "act", "store"])]
)
def test_a_level_lets_those_up_to_it(app: Celeriac, level: str, lets: list[str]) -> None:
    app.settings = replace(app.settings, remote_control=level)
    answers = {level: ask(app, command) for level, command in COMMANDS.items()}
    assert [level for level, answer in answers.items() if "ok" in answer] == lets
    assert all("CELERIAC_REMOTE_CONTROL=" in answer["error"] for answer in answers.values() if "ok" not in answer)


def test_without_a_setting_flowers_buttons_work_and_nothing_is_stored() -> None:
    level = Settings().remote_control
    buttons = {
        "shutdown", "pool_restart", "pool_grow", "pool_shrink", "autoscale", "add_consumer", "cancel_consumer",
        "revoke", "terminate", "enable_events",
    }  # fmt: skip
    assert not [name for name in buttons if remote.refused(name, level)]
    assert remote.refused("rate_limit", level)
    assert remote.refused("time_limit", level)
    assert remote.level_of("one of the application's") == "act"


@pytest.mark.parametrize("level", ["off", "look"])
def test_who_is_to_hear_nothing_does_not_listen(app: Celeriac, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    app.settings = replace(app.settings, remote_control=level)
    monkeypatch.setattr(StockWorker, "setup_instance", lambda _self: None)
    worker = Worker.__new__(Worker)
    worker.app, worker.quiet = app, True
    worker.setup_instance()
    assert app.conf.worker_enable_remote_control is (level != "off")


@pytest.mark.parametrize("level", [*REMOTE, *(f"{level}, signed" for level in REMOTE)])
def test_an_election_which_has_a_worker_call_any_task_is_refused_at_every_level(app: Celeriac, level: str) -> None:
    level, _, signed = level.partition(", ")
    app.settings = replace(app.settings, remote_control=level, remote_control_key=KEY if signed else None)
    panel = Panel(SimpleNamespace(app=app, hostname="celery@here"))
    guarded = panel.guarded({"election": lambda *_, **__: pytest.fail("it ran")})["election"]
    call = {"id": "1", "topic": "task", "action": {"task": "add", "args": [1]}}
    signature = {sealed.SEAL: sealed.seal(KEY, "election", call, None)} if signed else {}
    assert "refused at every level" in guarded(None, **call, **signature)["error"]


def test_what_changes_a_worker_is_in_the_trail_as_what_it_is(app: Celeriac, rows: Rows) -> None:
    assert ask(app, "pool_grow", n=2) == {"ok": {"n": 2}}
    ((by, via, *what),) = rows("SELECT by, via, action, kind, target, after FROM audit")
    assert (by.split(" at ")[0], via) == ("remote control", "remote control")
    assert what == ["pool_grow", "worker", "celery@here", {"n": "2"}]


@pytest.mark.parametrize("argument", ["\0", "\udc80", {"\0": 1}])
@pytest.mark.parametrize("command", ["pool_grow", "warm-up.caches"])
def test_what_postgres_cannot_store_leaves_a_row_in_the_trail_all_the_same(
    app: Celeriac, rows: Rows, command: str, argument: Any
) -> None:
    panel = Panel(SimpleNamespace(app=app, hostname="celery@here"))
    guarded = panel.guarded({command: lambda _state, /, **_given: {"ok": "done"}})
    assert guarded[command](None, n=argument) == {"ok": "done"}
    until(lambda: rows.one("SELECT count(*) FROM audit") == 1, "the row")


def test_with_a_key_what_is_more_than_a_look_is_signed_once_and_for_whom_it_is(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.settings = replace(app.settings, remote_control_key=KEY)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(StockControl, "broadcast", lambda _self, _command, given, *_, **__: sent.append(given))
    panel = Panel(SimpleNamespace(app=app, hostname="celery@here"))
    grow = panel.guarded({"pool_grow": lambda state, n: {"ok": n}})["pool_grow"]  # noqa: ARG005
    app.control.broadcast("pool_grow", {"n": 3}, destination=["celery@here"])
    app.control.pool_grow(n=3, destination=["celery@there"])
    mine, others = sent
    assert "not signed" in ask(app, "pool_grow", n=3)["error"]
    assert "another key" in ask(app, "pool_grow", **mine | {"n": 30})["error"]
    assert "for others" in ask(app, "pool_grow", **others)["error"]
    assert ask(app, "ping") == {"ok": {}}
    assert grow(None, **mine) == {"ok": 3}
    assert "was used" in grow(None, **mine)["error"]
    assert "before this worker began" in ask(app, "pool_grow", **mine)["error"], "another one, as after a restart"
    monkeypatch.setattr(sealed, "FRESH", -1.0)
    assert "not of the last" in grow(None, **mine)["error"]
    assert rows("SELECT action FROM audit") == [("pool_grow",)]


def test_who_may_only_look_does_not_have_events_sent_which_carry_calls_and_results(app: Celeriac) -> None:
    assert remote.level_of("enable_events") == remote.level_of("disable_events") == "act"
    app.settings = replace(app.settings, remote_control="look")
    assert "it needs act" in guarded_events(app, set())("enable_events")["error"]


def test_that_events_are_switched_is_noted_and_not_each_time_that_flower_asks(app: Celeriac, rows: Rows) -> None:
    told = guarded_events(app, {"worker"})
    for command in ("enable_events", "enable_events", "disable_events", "disable_events"):
        assert "ok" in told(command)
    assert rows("SELECT action, kind, target FROM audit ORDER BY id") == [
        ("enable_events", "worker", "celery@here"), ("disable_events", "worker", "celery@here"),
    ]  # fmt: skip


def guarded_events(app: Celeriac, groups: set[str]) -> Any:
    """Tells a worker whose events are of these groups a command."""
    dispatcher = SimpleNamespace(enabled=True, groups=groups)
    consumer = SimpleNamespace(app=app, hostname="celery@here", event_dispatcher=dispatcher)
    panel = Panel(consumer)
    handlers = panel.guarded(panel.commands())
    return lambda command: handlers[command](SimpleNamespace(consumer=consumer))


def test_a_refusal_is_a_warning_once_a_minute(
    app: Celeriac, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower asks for events every five seconds."""
    app.settings = replace(app.settings, remote_control="look")
    told = guarded_events(app, set())
    for _ in range(3):
        told("enable_events")
    assert caplog.text.count("enable_events: refused") == 1
    told("disable_events")
    assert caplog.text.count("refused") == 2
    monkeypatch.setattr("celeriac.worker.panel.WARN_AGAIN", 0.0)
    told("enable_events")
    assert caplog.text.count("enable_events: refused") == 2


def test_a_look_is_not_signed(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of the previous release takes no such argument."""
    app.settings = replace(app.settings, remote_control_key=KEY)
    sent: dict[str, Any] = {}
    monkeypatch.setattr(StockControl, "broadcast", lambda _, command, given, *__, **___: sent.update({command: given}))
    app.control.ping()
    app.control.inspect().active()
    app.control.shutdown()
    assert {command: sealed.SEAL in (given or {}) for command, given in sent.items()} == {
        "ping": False, "active": False, "shutdown": True,
    }  # fmt: skip


def test_a_command_of_the_applications_own_names_its_arguments_as_it_likes(app: Celeriac) -> None:
    taken = {"name": "a", "level": "DEBUG", "handler": 1, "state": 2, "seals": 3}
    assert ask(app, "ping", **taken) == {"ok": taken}
