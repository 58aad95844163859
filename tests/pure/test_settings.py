"""Settings are read once, and a bad one is refused with its variable's name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from celeriac.errors import ConfigurationError
from celeriac.settings import Settings, host_and_port, is_on

TEXTS = {
    "DATABASE_URL": "database_url", "REDIS_URL": "redis_url", "WORKER_ID": "worker_id", "WORKER_ROLE": "worker_role",
    "CELERIAC_REDIS_MASTER": "redis_master",
}  # fmt: skip

#: variable: (setting, a value, what it comes to, too little)
NUMBERS = {
    "HEARTBEAT_INTERVAL_MS": ("heartbeat_interval", "1500", 1.5, "49"),
    "POLL_INTERVAL_MS": ("poll_interval", "250", 0.25, "9"),
    "CELERIAC_TICKET_GRACE_MS": ("ticket_grace", "90000", 90, "49"),
    "CELERIAC_SWEEP_INTERVAL_MS": ("sweep_interval", "100", 0.1, "0"),
    "CELERIAC_DRAIN_GRACE_MS": ("drain_grace", "0", 0, "-1"),
    "CELERIAC_ENQUEUE_TIMEOUT_MS": ("enqueue_timeout", "2500", 2.5, "99"),
    "CELERIAC_ASYNC_SESSIONS": ("async_sessions", "8", 8, "0"),
    "CELERIAC_TIME_LIMIT_GRACE_MS": ("time_limit_grace", "2500", 2.5, "-0.1"),
    "CELERIAC_MAX_ARGUMENT_BYTES": ("max_argument_bytes", "1024", 1024, "0"),
    "CELERIAC_ADOPT_INTERVAL_MS": ("adopt_interval", "50", 0.05, "-1"),
    "CELERIAC_DEAD_LETTER_DAYS": ("dead_letter_days", "7", 7, "-1"),
    "CELERIAC_EVENTS_PER_SECOND": ("events_per_second", "0.5", 0.5, "-1"),
    "CELERIAC_EVENT_DAYS": ("event_days", "7", 7, "-1"),
    "CELERIAC_PASS_HOURS": ("pass_hours", "0.5", 0.5, "-1"),
    "BACKOFF_DURATION_MS": ("backoff_duration", "2000", 2, "49"),
    "MEMORY_BACKOFF_THRESHOLD": ("memory_backoff", "0.5", 0.5, "0"),
    "CPU_BACKOFF_THRESHOLD": ("cpu_backoff", "0.5", 0.5, "0"),
    "MAX_CONCURRENT_TASKS": ("max_concurrent_tasks", "4", 4, "0"),
    "CELERIAC_MEMORY_LIMIT_MB": ("memory_limit_mb", "2000", 2000, "-1"),
    "CELERIAC_ALERT_QUEUE_DEPTH": ("alert_queue_depth", "50", 50, "-1"),
    "CELERIAC_ALERT_FAILED_RATE": ("alert_failed_rate", "0.25", 0.25, "-0.1"),
    "CELERIAC_ALERT_RUNNING_MS": ("alert_running", "60000", 60, "-1"),
    "CELERIAC_ALERT_SCHEDULE_GRACE_MS": ("alert_schedule_grace", "1000", 1, "-1"),
    "CELERIAC_ALERT_DEAD_LETTERS": ("alert_dead_letters", "5", 5, "-1"),
    "CELERIAC_ALERT_BEAT_MS": ("alert_beat", "1000", 1, "-1"),
    "CELERIAC_ALERT_HEARTBEAT_MS": ("alert_heartbeat", "1000", 1, "-1"),
    "CELERIAC_ALERT_WAIT_MS": ("alert_wait", "1000", 1, "-1"),
    "CELERIAC_ALERT_LOST_TICKETS": ("alert_lost_tickets", "5", 5, "-1"),
    "CELERIAC_ALERT_TRANSACTION_MS": ("alert_transaction", "1000", 1, "-1"),
    "CELERIAC_MASTER_INTERVAL_MS": ("master_interval", "60000", 60, "49"),
    "CELERIAC_AGING_AFTER_MS": ("aging_after", "60000", 60, "-1"),
    "CELERIAC_AGING_INTERVAL_MS": ("aging_interval", "60000", 60, "0"),
    "CELERIAC_AGING_STEP": ("aging_step", "5", 5, "0"),
    "CELERIAC_AGING_CEILING": ("aging_ceiling", "100", 100, "-1000001"),
    "CELERIAC_API_REQUESTS_PER_SECOND": ("api_requests", "10", 10, "0"),
    "CELERIAC_API_FAILURES_PER_MINUTE": ("api_failures", "10", 10, "0"),
    "CELERIAC_API_BODY_BYTES": ("api_body_bytes", "2048", 2048, "1023"),
    "CELERIAC_DEPLOYMENT": ("deployment", "20261120", 20261120, "-1"),
}


def test_every_setting_is_tested_here() -> None:
    told = {"alert_webhook", "alert_mail", "alert_mail_from", "alert_mail_to"}
    tested = {
        *TEXTS.values(),
        *(setting for setting, *_ in NUMBERS.values()),
        "log_format",
        "remote_control",
        "remote_control_key",
        "metrics_address",
        "flower_url",
        "otel",
        *told,
    }
    assert {f.name for f in fields(Settings)} == tested


def test_the_log_is_text_or_json() -> None:
    assert [Settings.from_environ({"CELERIAC_LOG_FORMAT": given}).log_format for given in ("", "json")] == [
        "text", "json",
    ]  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"^CELERIAC_LOG_FORMAT='xml' is not usable: give text or json"):
        Settings.from_environ({"CELERIAC_LOG_FORMAT": "xml"})


def test_remote_control_has_a_level_and_may_have_a_key_that_nobody_is_shown() -> None:
    key = "a key that nobody has"
    settings = Settings.from_environ({"CELERIAC_REMOTE_CONTROL": "look", "CELERIAC_REMOTE_CONTROL_KEY": key})
    assert (settings.remote_control, settings.remote_control_key, Settings().remote_control) == ("look", key, "act")
    for wrong in ({"CELERIAC_REMOTE_CONTROL": "yes"}, {"CELERIAC_REMOTE_CONTROL_KEY": "short"}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))) as refused:
            Settings.from_environ(wrong)
        assert "short" not in str(refused.value)


def test_where_alerts_are_told_is_an_address_and_its_password_is_not_shown() -> None:
    hook, mail = "https://user:secret@hook.example/x", "smtp+starttls://user:secret@mail.example:587"
    of_mail = {"CELERIAC_ALERT_MAIL_FROM": "a@shop.example", "CELERIAC_ALERT_MAIL_TO": "b@shop.example"}
    given = {"CELERIAC_ALERT_WEBHOOK": hook, "CELERIAC_ALERT_MAIL": mail} | of_mail
    told = Settings.from_environ(given)
    assert (told.alert_webhook, told.alert_mail, told.alert_mail_to) == (hook, mail, "b@shop.example")
    for variable, wrong in (
        ("CELERIAC_ALERT_WEBHOOK", "ftp://secret"), ("CELERIAC_ALERT_WEBHOOK", "https://"),
        ("CELERIAC_ALERT_WEBHOOK", "http://h:x/secret"), ("CELERIAC_ALERT_MAIL", "mail.secret"),
        ("CELERIAC_ALERT_MAIL_FROM", ""), ("CELERIAC_ALERT_MAIL_TO", "nobody"),
        ("CELERIAC_ALERT_MAIL_TO", "a@b\r\nBcc: c@d"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=f"^{variable}.* is not usable: give ") as error:
            Settings.from_environ(given | {variable: wrong})
        assert "secret" not in str(error.value)


def test_flower_is_at_an_address_of_the_web() -> None:
    url = "https://flower.example/flower/"
    assert Settings.from_environ({"CELERIAC_FLOWER_URL": url}).flower_url == url
    for wrong in ("javascript:alert(1)", "flower", "https://", "//flower.example"):
        with pytest.raises(ConfigurationError, match=r"^CELERIAC_FLOWER_URL is not usable: give http://"):
            Settings.from_environ({"CELERIAC_FLOWER_URL": wrong})


def test_figures_have_a_port_and_maybe_a_host() -> None:
    assert [host_and_port(given) for given in ("9808", "0.0.0.0:9808", "[::1]:80")] == [
        ("127.0.0.1", 9808), ("0.0.0.0", 9808), ("::1", 80)
    ]  # fmt: skip
    for wrong in ("here", "h:0", "h:65536", ":"):
        with pytest.raises(ConfigurationError, match=f"^CELERIAC_METRICS_ADDRESS='{wrong}' is not usable: give a port"):
            Settings.from_environ({"CELERIAC_METRICS_ADDRESS": wrong})


@pytest.mark.parametrize(("variable", "setting"), TEXTS.items())
def test_a_text_is_taken_as_it_is_and_an_empty_one_is_none(variable: str, setting: str) -> None:
    assert getattr(Settings.from_environ({variable: "x://y"}), setting) == "x://y"
    assert getattr(Settings.from_environ({variable: ""}), setting) is None


@pytest.mark.parametrize("variable", NUMBERS)
def test_a_number_is_taken_in_its_own_unit_and_kept_in_seconds(variable: str) -> None:
    setting, given, value, _ = NUMBERS[variable]
    assert getattr(Settings.from_environ({variable: given}), setting) == pytest.approx(value)


@pytest.mark.parametrize("variable", NUMBERS)
def test_an_empty_variable_is_the_default(variable: str) -> None:
    assert Settings.from_environ({variable: ""}) == Settings() == Settings.from_environ({})


@pytest.mark.parametrize("variable", NUMBERS)
@pytest.mark.parametrize("bad", ["soon", "1,5", "nan", "inf", "1e999", "too little"])
def test_a_bad_number_is_refused_with_its_variable_its_value_and_what_would_be_right(variable: str, bad: str) -> None:
    given = NUMBERS[variable][-1] if bad == "too little" else bad
    with pytest.raises(
        ConfigurationError, match=rf"^{variable}='{given}' is not usable: give a (whole )?number, at least"
    ):
        Settings.from_environ({variable: given})


@pytest.mark.parametrize("variable", ["CELERIAC_MAX_ARGUMENT_BYTES", "CELERIAC_DEPLOYMENT"])
def test_what_is_counted_is_a_whole_number(variable: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{variable}='1.5' is not usable: give a whole number, at least"):
        Settings.from_environ({variable: "1.5"})


@pytest.mark.parametrize("variable", NUMBERS)
def test_no_setting_is_so_large_that_postgres_or_a_timer_overflows(variable: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{variable}='1e30' is not usable: give a .*at most"):
        Settings.from_environ({variable: "1e30"})


def test_the_environment_is_read_if_nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_ID", "store-7")
    assert Settings.from_environ().worker_id == "store-7"


@pytest.mark.parametrize(("given", "means"), [("On", True), (" yes", True), ("0", False), ("OFF", False), ("", None)])
def test_a_switch_says_what_it_says_or_stays_as_it_is_by_default(given: str, means: bool | None) -> None:
    for default in (True, False):
        assert is_on("QM", {"QM": given}, default=default) is (default if means is None else means)
        assert is_on("QM", {}, default=default) is default


def test_a_switch_that_says_neither_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^QM='disabled' is not usable: give true or false"):
        is_on("QM", {"QM": "disabled"})
