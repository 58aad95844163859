"""Configuration that applies to every role: a bad value is refused by the setting's own name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from celery.app.annotations import MapAnnotation, prepare
from celery.app.utils import Settings as Configuration
from kombu.utils.functional import maybe_evaluate

from celeriac.errors import ConfigurationError
from celeriac.roles.bounds import is_duration, seconds
from celeriac.roles.rules import DURATIONS, FOREVER, RULES
from celeriac.seam.configuration import by_user

#: Settings, with the role's option for each.
_SETTINGS = {
    "task_time_limit": "hard_timeout", "task_soft_time_limit": "timeout", "task_default_priority": "priority",
    "task_default_queue": "queue", "task_default_rate_limit": "rate_limit",
}  # fmt: skip
_ATTRIBUTES = {"time_limit": "hard_timeout", "soft_time_limit": "timeout"} | {name: name for name in RULES}

#: Options whose settings Celery treats as unset if None or 0.
_MAY_BE_EMPTY = ("hard_timeout", "timeout", "priority", "queue")

_EXPIRES = "seconds or a timedelta (at most 100 years), or None to keep finished tasks for ever"
_ANNOTATIONS = "give a dict of a task's name, or '*', to a dict of its attributes, or an object with `annotate`"


def role_options(conf: Configuration) -> dict[str, Any]:
    """Return the options for all roles: `keep` from `result_expires`. Raises ConfigurationError naming the setting."""
    said = by_user(conf)
    for setting, option in _SETTINGS.items():
        _refuse_unfit(setting, option, said.get(setting))
    return {"keep": _keep(said["result_expires"])} if "result_expires" in said else {}


def checked_annotations(conf: Configuration) -> list[Any]:
    """Return `task_annotations` as Celery's tasks read them. Raises ConfigurationError naming the setting."""
    prepared: list[Any] = list(prepare(conf.task_annotations))
    for annotation in prepared:
        if isinstance(annotation, MapAnnotation):
            _refuse_unfit_attributes(annotation)
        elif not _annotates(annotation):
            raise ConfigurationError(f"task_annotations={annotation!r:.200}: {_ANNOTATIONS}")
    return prepared


def _keep(expires: Any) -> Any:
    expires = seconds(expires) or 0  # in Celery both None and 0 mean never
    if not is_duration(expires):
        raise ConfigurationError(f"result_expires={expires!r}: give {_EXPIRES}")
    return timedelta(seconds=expires) or FOREVER


def _annotates(annotation: Any) -> bool:
    """Return whether it is an annotation. Raises ConfigurationError for an import path that does not exist."""
    try:
        evaluated = maybe_evaluate(annotation)
    except Exception as error:
        raise ConfigurationError(f"task_annotations: {error!r}; {_ANNOTATIONS}") from error
    return hasattr(evaluated, "annotate") or hasattr(evaluated, "annotate_any")


def _refuse_unfit_attributes(annotation: Mapping[Any, Any]) -> None:
    for task, attributes in annotation.items():
        setting = f"task_annotations[{task!r}]"
        try:
            values = dict(attributes)
        except (TypeError, ValueError):
            raise ConfigurationError(f"{setting}={attributes!r:.200}: {_ANNOTATIONS}") from None
        for name in values.keys() & _ATTRIBUTES.keys():
            _refuse_unfit(f"{setting}: {name}", _ATTRIBUTES[name], values[name])


def _refuse_unfit(setting: str, option: str, value: Any) -> None:
    rule = RULES[option]
    if option in _MAY_BE_EMPTY and not value:
        return
    if not rule.fits(seconds(value) if option in DURATIONS else value):
        raise ConfigurationError(f"{setting}={value!r:.200}: give {rule.right}")
