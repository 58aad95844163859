"""Celery's configuration. A user's setting applies wherever it can have a meaning; all others are reported.

There are three layers. The first wins: settings that rows and tickets need (`REQUIRED`), then the user's settings in
any spelling, then the engine's defaults (`USUAL`). So no setting can replace the row backend, and a setting that is
overruled can still be read and reported (`unused`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from celery import Task
from celery.app.defaults import _TO_OLD_KEY, SETTING_KEYS
from celery.app.defaults import DEFAULTS as CELERYS
from celery.app.utils import Settings as Configuration
from celery.app.utils import filter_hidden_settings
from celery.utils.collections import force_mapping
from celery.utils.imports import load_extension_class_names, symbol_by_name

from celeriac.settings import Settings
from celeriac.store.role_names import is_built_in

#: The scheduler to run in a second beat, beside a beat whose scheduler is not Celeriac's.
BESIDE = "celeriac.schedules:PassesAndSweeps"

BACKEND = "celeriac.seam.backend:RowBackend"

REQUIRED: Mapping[str, Any] = {
    "task_serializer": "json",
    "result_serializer": "json",
    "accept_content": ["json"],
    "result_accept_content": ["json"],
    "task_acks_late": False,
    "task_reject_on_worker_lost": None,
    "task_retry_on_worker_lost": False,
    "task_protocol": 2,
    "worker_consumer": "celeriac.worker.consumer:Consumer",
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "worker_deduplicate_successful_tasks": False,
}

#: Default options of a connection; the user's are merged over them.
TRANSPORT: Mapping[str, Any] = {
    "socket_timeout": 5,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 5,
}

#: Options that tickets need: no emulated acknowledgement, one list for each queue, published in batches.
TRANSPORT_REQUIRED: Mapping[str, Any] = {"ack_emulation": False, "priority_steps": [0], "retry_on_timeout": False}

USUAL: Mapping[str, Any] = {
    "result_backend": BACKEND,  # a user's value is reported and stays readable: the app has no other backend
    "worker_prefetch_multiplier": 1,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_transport_options": {},
    "beat_scheduler": "celeriac.schedules.beat:Scheduler",
}

_JSON = "arguments and results are JSON"
_JSONS = ("json", "application/json")
_AGAIN = "a task whose process dies runs again, up to its role's max_losses"
_ROWS = "results are the tasks' rows in Postgres"
_INSERT = "an enqueue is an INSERT, and needs no Redis"
_SORTED = "SQL sorts by priority: give priority and priority_range where a task is declared"
_SCHEDULES = "schedules are rows, at which beat looks at least once a second"
_EAGER = "the result of an eager call is its caller's alone"
_STOPS = "every stop lets tasks end for CELERIAC_DRAIN_GRACE_MS, and hands back the rest"
_KEEPS = "a role's keep, or result_expires, says how long its finished tasks stay"

#: Settings that have no effect, each with what happens instead.
INSTEAD: Mapping[str, str] = {
    "result_backend": _ROWS,
    "result_extended": "a row has the task's name, arguments and worker",
    "result_persistent": _ROWS,
    "result_failure_expires": _KEEPS,
    "result_chord_retry_interval": _ROWS,
    "result_chord_join_timeout": _ROWS,
    "result_chord_expires": _KEEPS,
    "accept_content": _JSON,
    "result_accept_content": _JSON,
    "task_compression": "rows are as large as they are",
    "result_compression": "rows are as large as they are",
    "task_acks_late": _AGAIN,
    "task_acks_on_failure_or_timeout": _AGAIN,
    "task_acks_on_failure": _AGAIN,
    "task_acks_on_timeout": _AGAIN,
    "task_reject_on_worker_lost": _AGAIN,
    "task_retry_on_worker_lost": _AGAIN,
    "task_protocol": "a task is a row, not a message",
    "task_default_delivery_mode": "a row is durable",
    "task_send_sent_event": "a row says when it was enqueued, and by whom",
    "task_publish_retry": _INSERT,
    "task_publish_retry_policy": _INSERT,
    "task_queue_max_priority": _SORTED,
    "task_inherit_parent_priority": _SORTED,
    "task_store_eager_result": _EAGER,
    "worker_consumer": "Celeriac's own outlives a Redis that goes away",
    "worker_cancel_long_running_tasks_on_connection_loss": "a task outlives a lost connection to Redis",
    "worker_deduplicate_successful_tasks": "a message that comes twice starts nothing twice",
    "worker_eta_task_limit": "delayed tasks wait in SQL",
    "worker_disable_rate_limits": "limits are kept in SQL",
    "worker_soft_shutdown_timeout": _STOPS,
    "worker_enable_soft_shutdown_on_idle": _STOPS,
    "worker_direct": (
        "no task is sent to one worker's own queue; list a role's queues in `queues=` and start workers with `-Q`"
    ),
    "beat_schedule_filename": _SCHEDULES,
    "beat_sync_every": _SCHEDULES,
    "beat_max_loop_interval": _SCHEDULES,
}

#: Settings that `check` refuses if they allow more than JSON.
SERIALIZERS = ("task_serializer", "result_serializer", "accept_content", "result_accept_content")

#: Options of a task that have no effect, each with what happens instead.
OF_TASKS: Mapping[str, str] = {
    "acks_late": _AGAIN,
    "reject_on_worker_lost": _AGAIN,
    "retry_on_worker_lost": _AGAIN,
    "compression": "rows are as large as they are",
    "backend_asked": _ROWS,
    "Request": (
        "no message of a task reaches a worker; hooks of its class (on_failure, on_retry, on_success) and the signals "
        "are called"
    ),
}

#: Values of these options that request nothing, so that nothing is reported.
_UNSAID = (None, False, "json", Task.Request)

#: Settings whose meaning differs from Celery's, with the difference.
DIFFERS: Mapping[str, str] = {
    "worker_max_tasks_per_child": "counts tickets, each of which carries up to its role's chunk of tasks",
}

DIVERT_CALLS = ("task_always_eager", "task_routes")

#: Prefixes of further settings that have no effect, with what happens instead.
_OTHERS = {
    ("result_exchange", "result_backend_", "redis_", "database_", "mongodb_", "cassandra_", "elasticsearch_",
     "couchbase_", "arangodb_", "cosmosdbsql_", "azureblockblob_", "s3_", "gcs_", "cache_"): _ROWS,
    ("security_",): "Postgres and Redis ask who writes to them",
}  # fmt: skip


def settle(conf: Configuration, usual: Mapping[str, Any]) -> dict[str, Any]:
    """Put the engine's layers above and below the user's settings once Celery has read these; for `add_defaults`."""
    lowest, highest = conf.maps[-1], dict(REQUIRED)
    for name, value in (dict(USUAL) | dict(usual)).items():
        lowest[name] = value
        if _TO_OLD_KEY.get(name) in lowest:
            lowest[_TO_OLD_KEY[name]] = value
    conf.maps.insert(0, highest)
    object.__setattr__(conf, "__class__", Layered)  # plain assignment on a Configuration would make a setting
    return {}


class Layered(Configuration):
    """Celery's configuration whose first map is `REQUIRED`, above the user's settings."""

    def add_defaults(self, d: Any) -> None:
        """Add defaults last: Celery puts them second, above the user's settings."""
        self.defaults.insert(0, force_mapping(d))
        self.maps[1:] = [self.changes, *self.defaults]


def by_user(conf: Configuration) -> Configuration:
    """Return only the user's settings: from a call, an object, a module, under old names or in a namespace."""
    conf.finalize()
    return Configuration({}, conf.maps[1:-1], conf._keys, conf.prefix)


def diverts_calls(conf: Configuration) -> bool:
    """Return whether any layer has a setting by which calls do not go straight to their rows.

    It looks into the layers itself: reading each setting as Celery does took 16 us of every `.delay()`.
    """
    if type(conf) is not Layered:
        return any(conf[name] for name in DIVERT_CALLS)
    spelt = _spelt(conf.prefix, tuple(conf._keys))
    for layer in conf.maps:
        for name in spelt:
            if layer.get(name):
                return True
    return False


@cache
def _spelt(prefix: str | None, others: tuple[Callable[[str], str], ...]) -> tuple[str, ...]:
    """Return all spellings of these settings that a layer may have."""
    names = Configuration({}, keys=others, prefix=prefix)
    return tuple({spelling for name in DIVERT_CALLS for spelling in names._to_keys(name)})


def by_environment(settings: Settings) -> dict[str, Any]:
    """Return defaults that come from the environment. Flower reads the master's name from them."""
    options = {"master_name": settings.redis_master} if settings.redis_master else {}
    return {"worker_concurrency": int(settings.max_concurrent_tasks), "broker_transport_options": options}


def transport_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connection's options: the defaults, the user's over them, then those that tickets need."""
    return dict(TRANSPORT) | dict(options) | dict(TRANSPORT_REQUIRED)


def unused(conf: Configuration, settings: Settings) -> Iterator[str]:
    """Yield a line for each setting that has no effect, with what happens instead."""
    said = by_user(conf)
    if variable := os.environ.get("CELERY_RESULT_BACKEND"):
        yield _line("CELERY_RESULT_BACKEND", _shown("result_backend", variable), _ROWS)
    for name in sorted(SETTING_KEYS | {"task_cls"}):
        value = said.get(name)
        if value is not None and (instead := _instead(name, value)):
            yield _line(name, _shown(name, value), instead)
        elif value is not None and name in DIFFERS:
            yield f"{name}={value!r} {DIFFERS[name]}"
    yield from _transport(said.get("broker_transport_options") or {})
    yield from _concurrency(said.get("worker_concurrency"), settings)
    yield from beside(said.get("beat_scheduler"))


def unused_by_tasks(tasks: Iterable[Any]) -> Iterator[str]:
    """Yield a line for each option of tasks that has no effect, with the tasks that have it."""
    theirs = sorted((task for task in tasks if not is_built_in(task.name)), key=lambda task: task.name)
    for option, instead in OF_TASKS.items():
        saying = [task.name for task in theirs if getattr(task, option, None) not in _UNSAID]
        if saying:
            more = f" and {len(saying) - 3} more" if len(saying) > 3 else ""
            yield f"{option.removesuffix('_asked')} of {', '.join(saying[:3])}{more} is not used: {instead}"


def _instead(name: str, value: Any) -> str | None:
    """Return what happens instead of the setting; None if its value is what happens anyway."""
    if value in (CELERYS.get(name), USUAL.get(name)) or value == REQUIRED.get(name, object()):
        return None
    if name in SERIALIZERS and (not is_json(value) or {*_JSONS} >= set(value)):
        return None  # `serializers.others` reports these
    if name in INSTEAD:
        return INSTEAD[name]
    return next((instead for begins, instead in _OTHERS.items() if name.startswith(begins)), None)


def is_json(said: Any) -> bool:
    """Return whether this serializer is JSON, or JSON is among the accepted content types."""
    return not said or any(one in _JSONS for one in ([said] if isinstance(said, str) else said))


def _transport(said: Mapping[str, Any]) -> Iterator[str]:
    for name, required in TRANSPORT_REQUIRED.items():
        if said.get(name, required) != required:
            yield _line(f"broker_transport_options[{name!r}]", said[name], f"tickets need {required!r}")
    if "visibility_timeout" in said:
        instead = "no message becomes visible again; a task whose worker is silent for stale_after is rescued"
        yield _line("broker_transport_options['visibility_timeout']", said["visibility_timeout"], instead)


def _concurrency(said: Any, settings: Settings) -> Iterator[str]:
    limit = int(settings.max_concurrent_tasks)
    if said not in (None, limit) and limit != Settings().max_concurrent_tasks:
        yield f"MAX_CONCURRENT_TASKS={limit} is not used: the configuration says worker_concurrency={said!r}"


def scheduler_class(said: Any) -> Any:
    """Return the scheduler's class for a class, its path or a package's alias (`-S django`); None if not found."""
    try:
        return symbol_by_name(said, aliases=dict(load_extension_class_names("celery.beat_schedulers")))
    except Exception:
        return None  # a package that lacks something it needs may raise anything when imported


def keeps_celerys(scheduler: Any) -> bool | None:
    """Return whether a Celeriac scheduler also runs `beat_schedule`; None for any other scheduler."""
    return getattr(scheduler_class(scheduler), "keeps_celerys", None)


def beside(scheduler: Any) -> Iterator[str]:
    """Yield a line if the scheduler is not Celeriac's: it runs neither passes nor sweeps."""
    if scheduler is not None and keeps_celerys(scheduler) is None:
        yield (
            f"beat_scheduler={scheduler!r} runs schedules of its own, and those of beat_schedule: run a beat with "
            f"`-S {BESIDE}` beside it, for passes and sweeps alone"
        )


def _line(name: str, value: Any, instead: str) -> str:
    return f"{name}={value!r:.200} is not used: {instead}"


def _shown(name: str, value: Any) -> Any:
    """Return the value with passwords masked."""
    return filter_hidden_settings({name: value})[name]
