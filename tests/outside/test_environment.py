"""The application's own settings: what cannot be is refused by its variable's name."""

from __future__ import annotations

import os
import sys

import pytest

from celeriac import ConfigurationError
from tasks.environment import number, switch, whole
from tests.processes import finished


@pytest.mark.parametrize("given", ["some", "nan", "inf", "-inf", "0.5"])
def test_a_number_that_cannot_be_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match=f"BATCH='{given}'.*at least 1"):
        number("BATCH", 60, at_least=1, environ={"BATCH": given})


def test_what_is_not_set_is_as_usual() -> None:
    assert number("BATCH", 60, at_least=1, environ={"BATCH": ""}) == 60
    assert switch("ON", default=True, environ={}) is True


def test_a_switch_is_true_or_false() -> None:
    assert switch("ON", default=True, environ={"ON": "False"}) is False
    assert switch("ON", default=False, environ={"ON": " on "}) is True
    with pytest.raises(ConfigurationError, match=r"ON='perhaps'.*give true or false"):
        switch("ON", default=True, environ={"ON": "perhaps"})


@pytest.mark.parametrize("given", ["1.5", "0", "inf", "some", "1e7"])
def test_a_whole_number_that_is_not_whole_is_refused_and_not_cut(given: str) -> None:
    with pytest.raises(ConfigurationError, match=f"BATCH='{given}'.*whole number, at least 1, at most 1000000"):
        whole("BATCH", 60, at_least=1, environ={"BATCH": given})


def test_a_whole_number_may_be_written_as_one_likes() -> None:
    assert [whole("BATCH", 60, at_least=1, environ={"BATCH": given}) for given in ("", "61", "62.0")] == [60, 61, 62]


@pytest.mark.parametrize(("name", "given"), [("QM_INSTASITES_BATCH_SIZE", "1.5"), ("QM_INSTASITES", "disabled")])
def test_what_cannot_be_keeps_the_application_from_starting(name: str, given: str) -> None:
    environ = {**os.environ, name: given}
    started = finished([sys.executable, "-c", "import tasks"], environ)
    assert started.returncode == 1
    assert f"ConfigurationError: {name}='{given}' is not usable" in started.stderr


@pytest.mark.parametrize(
    ("given", "elsewhere", "told"),
    [
        ("http://menus.example", "", "{400} ['dutchie', 'webmenus']"), ("", "", "{None} ['dutchie']"),
        ("http://menus.example", "browser:8700", "{None} ['dutchie', 'webmenus']"),
    ],
)  # fmt: skip
def test_where_stores_have_web_pages_they_are_looked_for_daily_by_workers_with_a_browser_s_memory(
    given: str, elsewhere: str, told: str
) -> None:
    asks = (
        "from celeriac.schedules.listed import entries; from tasks import app; from tasks.stores import PER_STORE; "
        "print({task.role.memory_per_task for task in PER_STORE},"
        " [one.kwargs['platform'] for one in entries(app, {}).values() if 'platform' in one.kwargs])"
    )
    environ = {**os.environ, "WEBMENUS_BASE_URL": given, "BROWSER_ADDRESS": elsewhere}
    asked = finished([sys.executable, "-c", asks], environ)
    assert asked.stdout.strip() == told
