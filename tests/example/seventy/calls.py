"""The steps from a declaration to a task's outcome."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from celery import signals
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult
from kombu.exceptions import EncodeError

from tests.example.seventy import code
from tests.example.seventy.code import app
from tests.example.seventy.step import PATIENCE, ended, error_of, eventually, noted, outcome, step

# -- declaring ---------------------------------------------------------------------------------------------------------


@step
def a_task_is_named_after_its_module() -> Any:
    return [code.unnamed.name, ended(code.unnamed.delay(1))]


@step
def a_task_is_found_by_its_name() -> Any:
    return [app.tasks["seventy.add"] == code.add, "seventy.nothing" in app.tasks]


@step
def a_shared_task_has_defaults_and_keywords() -> Any:
    return [ended(code.shared.delay()), ended(code.shared.delay(4, times=3))]


@step
def a_bound_task_sees_its_request() -> Any:
    return ended(code.bound.delay(5))


@step
def a_base_class_keeps_what_it_opened() -> Any:
    return [ended(code.resource.delay()), ended(code.resource.delay())]


@step
def hooks_of_a_base_class_are_called() -> Any:
    good, bad = code.resource.delay(), code.resource.delay(fail=True)
    ended(good)
    outcome(bad)
    names = (f"{good.id}:on_success", f"{good.id}:after_return", f"{bad.id}:on_failure", f"{bad.id}:after_return")
    return [noted(name) for name in names]


@step
def a_call_of_a_class_of_its_own_is_made() -> Any:
    return ended(code.doubled.delay(21))


@step
def a_class_is_registered_as_a_task() -> Any:
    return ended(code.counting.delay("one two three"))


@step
def annotations_set_attributes() -> Any:
    return code.annotated.default_retry_delay


@step
def a_task_is_a_function_still() -> Any:
    return [code.add(1, 2), code.add.run(3, 4), code.bound(1)["called_directly"]]


# -- calling -----------------------------------------------------------------------------------------------------------


@step
def delay_and_apply_async() -> Any:
    return [ended(code.add.delay(1, y=2)), ended(code.add.apply_async((1,), {"y": 5}))]


@step
def wrong_arguments_are_a_type_error_at_once() -> Any:
    return error_of(lambda: code.add.delay(1), TypeError)


@step
def what_no_serializer_knows_is_refused_at_once() -> Any:
    return error_of(lambda: code.echo.delay(object()), EncodeError)


@step
def a_countdown_is_waited_for() -> Any:
    sent = time.time()
    return ended(code.now.apply_async(countdown=1)) - sent >= 1


@step
def an_eta_is_waited_for() -> Any:
    eta = datetime.now(UTC) + timedelta(seconds=1)
    return ended(code.now.apply_async(eta=eta)) >= eta.timestamp()


@step
def what_has_expired_is_revoked() -> Any:
    result = code.add.apply_async((1, 1), expires=datetime.now(UTC) - timedelta(seconds=5))
    eventually(result.ready)
    return [result.state, error_of(lambda: ended(result)) == TaskRevokedError.__name__]


@step
def an_id_of_ones_own() -> Any:
    result = code.add.apply_async((1, 1), task_id="seventy-1")
    return [result.id, ended(result), AsyncResult("seventy-1", app=app).state]


@step
def a_task_goes_to_the_queue_of_its_route() -> Any:
    return ended(code.monthly.delay())


@step
def a_calls_own_queue() -> Any:
    return ended(code.delivery.apply_async(("routing_key",), queue="reports"))


@step
def a_priority_is_told() -> Any:
    return ended(code.delivery.apply_async(("priority",), priority=4))


@step
def headers_and_a_shadow_name() -> Any:
    sent = code.request_of.apply_async(("headers", "shadow"), headers={"tenant": "a"}, shadow="another")
    headers, shadow = ended(sent)
    return [headers["tenant"], shadow]


@step
def the_request_knows_roots_and_times() -> Any:
    values = ended(code.request_of.delay("root_id", "parent_id", "group", "expires", "timelimit", "argsrepr"))
    return [isinstance(values[0], str), *values[1:]]


@step
def send_task_by_name() -> Any:
    return ended(app.send_task("seventy.add", (2, 3)))


@step
def types_come_back_as_they_were() -> Any:
    values = (datetime(2026, 1, 2, 3, tzinfo=UTC), date(2026, 1, 2), Decimal("1.50"), UUID(int=7), b"\x00\xff")
    got = ended(code.echo.delay(*values))
    return [got[: len(values)] == list(values), got[len(values) :]]


@step
def a_tuple_is_a_list_and_a_key_a_text() -> Any:
    return ended(code.echo.delay((1, 2), {1: "one"}))


@step
def compressed_calls() -> Any:
    return ended(code.add.apply_async((1, 2), compression="gzip"))


@step
def an_ignored_result_is_none() -> Any:
    return [ended(code.silent.delay()), ended(code.add.apply_async((1, 2), ignore_result=True))]


@step
def signals_of_publishing() -> Any:
    heard: list[str] = []

    def before(sender: Any, **_: Any) -> None:
        heard.append(f"before {sender}")

    def after(sender: Any, **_: Any) -> None:
        heard.append(f"after {sender}")

    signals.before_task_publish.connect(before)
    signals.after_task_publish.connect(after)
    try:
        ended(code.add.delay(1, 2))
    finally:
        signals.before_task_publish.disconnect(before)
        signals.after_task_publish.disconnect(after)
    return heard


@step
def signals_around_a_run() -> Any:
    good, bad = code.resource.delay(), code.resource.delay(fail=True)
    outcome(good), outcome(bad)
    return [noted(f"{good.id}:signals", 3), noted(f"{bad.id}:signals", 3)]


# -- failures, retries and limits --------------------------------------------------------------------------------------


@step
def a_failure_is_raised_by_get() -> Any:
    result = code.fail.delay()
    return [error_of(lambda: ended(result)), result.state, "ValueError: boom" in result.traceback]


@step
def an_error_of_ones_own_comes_back_as_it_was() -> Any:
    result = code.shop_error.delay()
    error = result.get(timeout=PATIENCE, propagate=False)
    return [type(error).__name__, list(error.args), result.failed(), result.successful()]


@step
def a_retry_until_it_succeeds() -> Any:
    result = code.patient.delay(2)
    return [ended(result), len(noted(f"{result.id}:retries", 2))]


@step
def a_retry_with_other_arguments() -> Any:
    return ended(code.other_arguments.delay(2))


@step
def too_many_retries_raise_the_error() -> Any:
    return outcome(code.stubborn.delay(True))


@step
def too_many_retries_without_an_error() -> Any:
    state, error = outcome(code.stubborn.delay(False))
    return [state, error.partition("(")[0]]


@step
def autoretry() -> Any:
    result = code.auto.delay()
    return [*outcome(result), len(noted(f"{result.id}:auto", 3))]


@step
def a_soft_time_limit_can_be_caught() -> Any:
    return ended(code.slow.apply_async((30,), soft_time_limit=1))


@step
def a_hard_time_limit_fails_the_task() -> Any:
    return outcome(code.stuck.apply_async(time_limit=2, soft_time_limit=1))


@step
def an_ignored_task_keeps_its_own_state() -> Any:
    result = code.skipped.delay()
    return eventually(lambda: result.state == "SKIPPED")


@step
def a_link_gets_the_result() -> Any:
    return [ended(code.add.apply_async((2, 3), link=code.noted.s("linked"))), noted("linked")]


@step
def an_errback_gets_the_error() -> Any:
    result = code.fail.apply_async(link_error=code.errback.s())
    outcome(result)
    return noted(f"{result.id}:errback")
