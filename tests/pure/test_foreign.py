"""Plain Celery's messages are read strictly; what fits nothing becomes a dead letter that says why."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from celery import Celery, chain, group
from kombu import Connection
from kombu.utils.json import dumps

from celeriac.enqueue.adopted import Letter
from celeriac.enqueue.foreign import judge
from celeriac.enqueue.rows import NewTask
from celeriac.errors import UnknownRole
from celeriac.roles.priorities import Priorities
from celeriac.roles.role import Role
from celeriac.roles.signature import Signature
from tests.pure.envelopes import REAL

LIMIT = 262_144


def add(a: Any, b: Any = 1, *, c: Any = None) -> None: ...


def fussy(_: Mapping[str, Any]) -> str:
    raise KeyError("no such thing")


ROLES = {
    "add": Role(name="add", adopt=True, priority=10, priority_range=(5, 20)),
    "one": Role(name="one", adopt=True, unique_by="a"),
    "fussy": Role(name="fussy", adopt=True, lock_by=fussy),
    "shy": Role(name="shy"),
}


def role_named(name: str) -> tuple[Role, Signature]:
    if name not in ROLES:
        raise UnknownRole(f"no role {name!r}")
    return ROLES[name], Signature.of(add, role=name)


def judged(payload: bytes | Mapping[str, Any], limit: float = LIMIT) -> NewTask | Letter | None:
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return judge(content, role_named, limit, Priorities())


def adopted(payload: bytes | Mapping[str, Any]) -> NewTask:
    task = judged(payload)
    assert isinstance(task, NewTask), task
    return task


def refused(payload: bytes | Mapping[str, Any], limit: float = LIMIT) -> Letter:
    letter = judged(payload, limit)
    assert isinstance(letter, Letter), letter
    return letter


class Plain:
    """A stock Celery app, and the message it sent last, as kombu would LPUSH it."""

    def __init__(self, **conf: Any) -> None:
        self.app = Celery("plain", broker=f"memory://{uuid.uuid4()}", set_as_current=False)
        self.app.conf.update(conf)

    def sent(self, name: str = "add", args: Any = (1,), kwargs: Any = None, **options: Any) -> bytes:
        with Connection(self.app.conf.broker_url) as connection:
            self.app.send_task(name, args, kwargs, connection=connection, **options)
            return self.taken(connection)

    def taken(self, connection: Connection) -> bytes:
        return str(dumps(connection.default_channel._queue_for("celery").get())).encode()

    def published(self, canvas: Any) -> bytes:
        with Connection(self.app.conf.broker_url) as connection:
            canvas.apply_async(connection=connection)
            return self.taken(connection)


PROTOCOLS = [1, 2]
ID = "5f0c8d3e-5ee7-4a4e-a2c5-0a4d5b8f3a11"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_message_of_either_protocol_is_its_task(protocol: int) -> None:
    task = adopted(Plain(task_protocol=protocol).sent(args=(1,), kwargs={"b": 2}, task_id=ID))
    assert (task.role, task.task_id, task.arguments) == ("add", ID, ([], {"a": 1, "b": 2}))
    assert (task.at, task.expires_at, task.timeout, task.retry_count) == (None, None, None, 0)
    assert (task.priority, task.is_named) == (10, True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_times_limits_and_retries_are_kept(protocol: int) -> None:
    due = datetime.datetime(2030, 1, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    late = due + datetime.timedelta(hours=1)
    sent = Plain(task_protocol=protocol).sent(eta=due, expires=late, soft_time_limit=7, time_limit=9, retries=2)
    task = adopted(sent)
    assert [datetime.datetime.fromisoformat(str(time)) for time in (task.at, task.expires_at)] == [due, late]
    assert (task.timeout, task.retry_count) == (7, 2)


@pytest.mark.parametrize("time", ["9999-12-31T23:00:00-05:00", "0001-01-01T00:30:00+05:00"])
@pytest.mark.parametrize("field", ["eta", "expires"])
def test_a_time_that_no_row_could_be_read_with_is_a_dead_letter(field: str, time: str) -> None:
    sent = json.loads(Plain().sent())
    assert "give a time in the years 1 to 9999" in refused(sent | {"headers": sent["headers"] | {field: time}}).reason


def test_a_hard_limit_alone_is_the_timeout() -> None:
    assert adopted(Plain().sent(time_limit=9)).timeout == 9


@pytest.mark.parametrize(("celerys", "ours"), [(None, 10), (0, 10), (3, 7), (5, 5), (9, 5), (255, 5)])
def test_what_celery_calls_less_urgent_is_below_the_roles_priority(celerys: int | None, ours: int) -> None:
    """The role's own range ends at 5."""
    assert adopted(Plain().sent(priority=celerys)).priority == ours


MASKS = {"argsrepr": "(***)", "kwargsrepr": "{'b': '***'}"}


def masks(message: bytes) -> dict[str, str]:
    return {name: told for name, told in (adopted(message).headers or {}).items() if name in MASKS}


def test_what_its_sender_masks_stays_masked() -> None:
    assert masks(Plain().sent(args=(1,), kwargs={"b": 2}, **MASKS)) == MASKS
    half = Plain().sent(args=(1,), kwargs={"b": 2}, kwargsrepr="{***}")
    assert masks(half) == {"argsrepr": "(1,)", "kwargsrepr": "{***}"}
    assert masks(Plain().sent(args=(1,), argsrepr="\x1b" * 5000))["argsrepr"] == "�" * 1024
    letter = refused(Plain().sent("nobody", (1,), {"b": 2}, **MASKS))
    assert (letter.args, letter.kwargs) == (MASKS["argsrepr"], MASKS["kwargsrepr"])


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {}), ([1], {"b": "x" * 5000}), ((datetime.datetime(2030, 1, 1),), {"b": uuid.UUID(ID)})],
)
def test_what_celery_says_of_arguments_by_itself_is_no_mask(args: Any, kwargs: Any) -> None:
    assert masks(Plain().sent(args=args, kwargs=kwargs)) == {}


def test_where_it_comes_from_is_kept() -> None:
    task = adopted(Plain().sent(task_id=ID, shadow="nightly", root_id="the root", parent_id="the parent"))
    assert task.headers == {"shadow": "nightly", "root_id": "the root", "parent_id": "the parent"}
    assert task.enqueued_by is not None
    assert "@" in task.enqueued_by


def test_dates_and_the_like_arrive_as_they_were_sent() -> None:
    at, number = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC), uuid.UUID(ID)
    task = adopted(Plain().sent("one", args=(number,), kwargs={"b": at}))
    assert task.arguments[1] == {
        "a": {"__type__": "uuid", "__value__": {"hex": number.hex}},
        "b": {"__type__": "datetime", "__value__": at.isoformat()},
    }
    assert task.unique_key == ID


def test_a_body_that_gzip_made_smaller_is_read() -> None:
    assert adopted(Plain().sent(args=("x" * 1000,), compression="gzip")).arguments[1] == {"a": "x" * 1000}


def test_a_member_of_a_group_that_nothing_waits_for_is_a_task_like_any_other() -> None:
    plain = Plain()
    assert adopted(plain.published(group([plain.app.signature("add", (1,), app=plain.app)]))).arguments[1] == {"a": 1}


def workflows() -> dict[str, bytes]:
    plain = Plain(task_protocol=2)

    def call(n: int) -> Any:
        return plain.app.signature("add", (n,), app=plain.app)

    return {
        "chain": plain.published(chain(call(1), call(2))),
        "link": plain.sent(link=call(2)),
        "link_error": plain.sent(link_error=call(2)),
        "chord": plain.sent(chord=call(2)),
        "link by protocol 1": Plain(task_protocol=1).sent(link=call(2)),
    }


@pytest.mark.parametrize("part", ["chain", "link", "link_error", "chord", "link by protocol 1"])
def test_a_part_of_a_workflow_would_be_half_run(part: str) -> None:
    letter = refused(workflows()[part])
    assert "part of a workflow" in letter.reason
    assert (letter.name, letter.args) == ("add", [1])


def test_a_dead_letter_tells_what_was_called_and_by_whom() -> None:
    sent = Plain().sent("no.such.task", args=(1, "two"), kwargs={"c": 3}, task_id=ID)
    letter = refused(sent)
    assert (letter.name, letter.task_id, letter.args, letter.kwargs) == ("no.such.task", ID, [1, "two"], {"c": 3})
    assert letter.reason == "no role 'no.such.task'"
    assert letter.message == sent
    assert letter.sender is not None


class Bomb:
    def __reduce__(self) -> Any:
        return exit, (1,)


def test_a_pickle_is_not_opened_and_shows_what_its_sender_says() -> None:
    letter = refused(Plain().sent(args=(Bomb(),), serializer="pickle", argsrepr="(Bomb(),)"))
    assert "application/x-python-serialize" in letter.reason
    assert (letter.name, letter.args, letter.kwargs) == ("add", "(Bomb(),)", "{}")


@pytest.mark.parametrize("compression", ["bzip2", "lzma"])
def test_only_gzip_is_unpacked(compression: str) -> None:
    assert "compressed by" in refused(Plain().sent(compression=compression)).reason


def test_a_role_that_does_not_adopt_takes_none() -> None:
    assert "adopt=True" in refused(Plain().sent("shy")).reason


def test_arguments_that_do_not_fit_are_told() -> None:
    assert "unexpected keyword argument 'colour'" in refused(Plain().sent(kwargs={"colour": 1})).reason
    assert "CELERIAC_MAX_ARGUMENT_BYTES" in refused(Plain().sent(args=("x" * 500_000,))).reason
    assert "KeyError('no such thing')" in refused(Plain().sent("fussy")).reason


def test_a_ticket_on_a_plain_queue_is_nobodys_message() -> None:
    assert judged(REAL) is None


@pytest.mark.parametrize("kind", ["datetime", "date", "time", "uuid", "decimal"])
def test_arguments_that_cannot_be_read_are_not_quoted(kind: str) -> None:
    """Which of them are secret is not known yet, and the reason is on pages and in the log."""
    sent = Plain().sent(args=({"__type__": kind, "__value__": "hunter2-secret"},))
    reason = refused(sent).reason
    assert "kombu's notation" in reason
    assert "hunter2" not in reason
