"""The application's own settings: what cannot be is refused by its variable's name."""

from __future__ import annotations

import pytest

from celeriac import ConfigurationError
from tasks.environment import number, switch


@pytest.mark.parametrize("given", ["some", "nan", "inf", "-inf", "0.5"])
def test_a_number_that_cannot_be_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match=f"BATCH='{given}'.*at least 1"):
        number("BATCH", 60, at_least=1, environ={"BATCH": given})


def test_what_is_not_set_is_as_usual() -> None:
    assert number("BATCH", 60, at_least=1, environ={"BATCH": ""}) == 60
    assert switch("ON", default=True, environ={}) is True


def test_a_switch_is_true_or_false() -> None:
    assert switch("ON", default=True, environ={"ON": "False"}) is False
    with pytest.raises(ConfigurationError, match="ON='perhaps'"):
        switch("ON", default=True, environ={"ON": "perhaps"})
