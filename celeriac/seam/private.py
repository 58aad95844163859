"""The private, undocumented and replaced parts of Celery, kombu and their like on which the engine relies.

`python -m tests.private` tries newer releases: it names each part that is gone or has another shape, what breaks
without it, and where the engine uses it. `tests/pure/test_private.py` refuses the use of a part not listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Relied(NamedTuple):
    """A part on which the engine relies.

    `shape`: the parameters of a callable, a value's type, "class", or "attribute" (of instances). `breaks`: what users
    see without the part. `before`: its shape in Celery 5.6, if different; "gone" if `celeriac.seam.older` replaces it.
    """

    shape: str
    breaks: str
    before: str | None = None


RELIED_ON: Mapping[str, Relied] = {
    "billiard.common.terminate_handler_fired": Relied("()", "a child that is terminated counts as lost"),
    "billiard.einfo.ExceptionInfo": Relied("class", "the worker cannot read the error of a lost or stopped child"),
    "billiard.einfo.ExceptionWithTraceback": Relied("class", "as of `ExceptionInfo`"),
    "billiard.exceptions.WorkerLostError": Relied("class", "a lost child cannot be distinguished from a failed task"),
    "billiard.pool.EX_RECYCLE": Relied("int", "a process that is replaced for its memory counts as lost"),
    "billiard.process.current_process": Relied("()", "children do not know their place in the memory they share"),
    "celery._state._on_app_finalizers": Relied(
        "set", "tasks that a test shares appear in the apps of the tests after it"
    ),
    "celery._state._set_current_app": Relied(
        "(app)", "an app that was closed stays the current one, and its memory is kept"
    ),
    "celery._state._task_stack": Relied(
        "()", "`current_task` in coroutines and on the direct way of a run, and the logs' task ids"
    ),
    "celery.utils.threads._LocalStack._local": Relied("attribute", "each coroutine's first entry takes a lookup more"),
    "celery._state._tls": Relied("_TLS", "Django finds no app that was made current in another thread"),
    "celery._state.default_app": Relied(
        "attribute", "Django without CELERIAC_APP finds no app; tests restore the wrong app"
    ),
    "celery._state.get_current_app": Relied("()", "as with `_set_current_app`; tests restore the wrong app"),
    "celery._state.get_current_task": Relied("()", "log lines without their task's name and id"),
    "celery._state.set_default_app": Relied("(app)", "a test's app stays the default one for the tests after it"),
    "celery.app.amqp.AMQP._retry_publish": Relied(
        "(self, publish, *args, **kwargs)", "a link that is refused fails the task before it", before="gone"
    ),
    "celery.app.annotations.MapAnnotation": Relied(
        "class", "wrong values in `task_annotations` are not refused at start"
    ),
    "celery.app.annotations.prepare": Relied("(annotations)", "as of `MapAnnotation`"),
    "celery.app.autoretry._orig_run": Relied(
        "attribute", "a handler with `autoretry_for` has the signature `*args, **kwargs`: no keys, no checks"
    ),
    "celery.app.base.Celery._after_fork": Relied(
        "(self)", "a test's app keeps connections to the servers of the test before it"
    ),
    "celery.app.base.Celery._conf": Relied("attribute", "the engine's defaults rank above what the user configures"),
    "celery.app.base.Celery._connection": Relied(
        "(self, url, userid, password, virtual_host, port, ssl, connect_timeout, transport, transport_options, "
        "heartbeat, login_method, failover_strategy, **kwargs)",
        "stock transports in place of the engine's: error replies of Redis end workers",
    ),
    "celery.app.base.Celery._load_config": Relied(
        "(self)", "the engine's defaults are missing: acks, prefetch, transport options, backend"
    ),
    "celery.app.base.Celery._pending_defaults": Relied("attribute", "as of `_conf`"),
    "celery.app.base.Celery._task_from_fun": Relied(
        "(self, fun, name, base, bind, pydantic, pydantic_strict, pydantic_context, pydantic_dump_kwargs, **options)",
        "options of roles are passed to Celery, which makes attributes of them, unchecked",
    ),
    "celery.app.defaults._TO_OLD_KEY": Relied(
        "dict", "the engine's defaults do not apply where a user writes Celery's old names"
    ),
    "celery.app.routes.Router": Relied("class", "`task_routes` is not read: roles get the default queue"),
    "celery.app.routes.prepare": Relied("(routes)", "as of `Router`"),
    "celery.app.task.Task._dump_pydantic_arguments": Relied(
        "attribute", "pydantic models as arguments are refused, as JSON has none", before="gone"
    ),
    "celery.app.task.Task._get_exec_options": Relied(
        "(self)", "a call on Celery's longer way lacks its role's priority"
    ),
    "celery.app.trace.LOG_SUCCESS": Relied("str", "as of `info`"),
    "celery.app.trace.TraceInfo": Relied("class", "an error on the direct way, and a broken ticket, are not reported"),
    "celery.app.trace.__file__": Relied(
        "str", "the worker's guard of `Task.__call__` is taken for a user's: all runs take the longer way"
    ),
    "celery.app.trace.build_tracer": Relied(
        "(name, task, loader, hostname, store_errors, Info, eager, propagate, app, monotonic, trace_ok_t, "
        "IGNORE_STATES)",
        "no task with signals, hooks or a `__call__` of its own can run",
    ),
    "celery.app.trace.info": Relied("(fmt, context)", "the log's line of a success is missing"),
    "celery.app.trace.logger": Relied("Logger", "as with `info`; a level set for this logger is ignored"),
    "celery.app.trace.report_internal_error": Relied(
        "(task, exc)", "a hook of a task that raises after a failure ends the run without an outcome"
    ),
    "celery.app.trace.task_has_custom": Relied("(task, attr)", "hooks of task classes are not called"),
    "celery.app.trace.trace_ok_t": Relied("class", "the worker cannot read its child's answers"),
    "celery.app.trace.trace_task": Relied("(task, uuid, args, kwargs, request, **opts)", "as with `build_tracer`"),
    "celery.app.trace.traceback_clear": Relied(
        "(exc)", "frames of a failed handler keep its memory until the next failure"
    ),
    "celery.app.utils.Settings._keys": Relied(
        "attribute", "the user's settings look like defaults: `check` names nothing"
    ),
    "celery.app.utils.Settings._to_keys": Relied(
        "(self, key)", "`.delay()` ignores settings with a namespace or an old name"
    ),
    "celery.apps.worker.Worker._isatty": Relied("attribute", "a stop in a terminal does not say how to force it"),
    "celery.backends.base.Backend._call_task_errbacks": Relied(
        "(self, request, exc, traceback)", "errbacks are not called"
    ),
    "celery.backends.base.Backend.add_to_chord": Relied(
        "(self, chord_id, result)", "`self.add_to_chord` is refused by Celery"
    ),
    "celery.backends.base.Backend.apply_chord": Relied(
        "(self, header_result_args, body, **kwargs)", "chords ask for a backend that can count"
    ),
    "celery.backends.base.Backend.cleanup": Relied("(self)", "`celery.backend_cleanup` raises"),
    "celery.backends.base.Backend.forget": Relied("(self, task_id)", "`forget` forgets nothing"),
    "celery.backends.base.Backend.get_task_meta": Relied("(self, task_id, cache)", "results are not read from rows"),
    "celery.backends.base.Backend.mark_as_done": Relied(
        "(self, task_id, result, request, store_result, state)", "outcomes are not written"
    ),
    "celery.backends.base.Backend.mark_as_failure": Relied(
        "(self, task_id, exc, traceback, request, store_result, call_errbacks, state)",
        "as with `mark_as_done`; errbacks are called twice",
    ),
    "celery.backends.base.Backend.mark_as_retry": Relied(
        "(self, task_id, exc, traceback, request, store_result, state)", "a retry is stored without its error's cause"
    ),
    "celery.backends.base.Backend.set_chord_size": Relied(
        "(self, group_id, chord_size)", "chords whose header is a generator raise"
    ),
    "celery.backends.base.Backend.store_result": Relied(
        "(self, task_id, result, state, traceback, request, **kwargs)",
        "as with `mark_as_done`; `update_state` stores nothing",
    ),
    "celery.backends.base.Backend.supports_autoexpire": Relied(
        "bool", "beat gets a needless entry that cleans up results"
    ),
    "celery.backends.base.Backend.supports_native_join": Relied("bool", "groups are awaited task by task"),
    "celery.backends.base.BaseBackend": Relied("class", "no result backend: nothing is settled"),
    "celery.backends.base.SyncBackendMixin.iter_native": Relied(
        "(self, result, timeout, interval, no_ack, on_message, on_interval)", "`GroupResult.then` is not called"
    ),
    "celery.backends.base.SyncBackendMixin.wait_for": Relied(
        "(self, task_id, timeout, interval, no_ack, on_interval)",
        "`get()` polls in its own loop instead of with all others",
    ),
    "celery.canvas._chord": Relied("class", "chords take no `session`, and freeze each member twice"),
    "celery.canvas._chord.apply_async": Relied(
        "(self, args, kwargs, task_id, producer, publisher, connection, router, result_cls, **options)",
        "as of `_chord`: replaced",
    ),
    "celery.canvas._chord.run": Relied(
        "(self, header, body, partial_args, app, interval, countdown, max_retries, eager, task_id, kwargs, "
        "header_delay, **options)",
        "as of `_chord`: replaced",
        "(self, header, body, partial_args, app, interval, countdown, max_retries, eager, task_id, kwargs, **options)",
    ),
    "celery.canvas.group._freeze_group_tasks": Relied(
        "(self, _id, group_id, chord, root_id, parent_id, group_index)",
        "members of a chord are frozen twice: a quarter of what they cost",
    ),
    "celery.canvas.group._prepared": Relied(
        "(self, tasks, partial_args, group_id, root_id, app, CallableSignature, from_dict, isinstance, tuple, freeze)",
        "as of `_freeze_group_tasks`",
        "(self, tasks, partial_args, group_id, root_id, app, CallableSignature, from_dict, isinstance, tuple)",
    ),
    "celery.concurrency.ALIASES": Relied(
        "dict", "`-P asyncio`, `threads` and `gevent` are Celery's pools, which take no tickets in bulk"
    ),
    "celery.concurrency.base.BasePool": Relied("class", "as of `ALIASES`"),
    "celery.concurrency.base.BasePool._get_info": Relied("(self)", "`inspect stats` lacks the tasks in flight"),
    "celery.concurrency.base.BasePool.body_can_be_buffer": Relied("bool", "messages are copied before they are read"),
    "celery.concurrency.base.BasePool.on_start": Relied("(self)", "the slots are not started"),
    "celery.concurrency.base.BasePool.on_stop": Relied("(self)", "a stop does not wait for what runs"),
    "celery.concurrency.base.BasePool.signal_safe": Relied("bool", "as of `on_stop`"),
    "celery.concurrency.gevent.TaskPool": Relied("class", "no pool `-P gevent`"),
    "celery.concurrency.thread.TaskPool": Relied("class", "no pool `-P threads`"),
    "celery.contrib.pytest._create_app": Relied(
        "(enable_logging, use_trap, parameters, **config)", "Celery's own fixtures make a stock app"
    ),
    "celery.current_app._get_current_object": Relied("()", "`celeriac.testing` finds no current app"),
    "celery.platforms.EX_FAILURE": Relied("int", "exit statuses"),
    "celery.platforms.EX_OK": Relied("int", "exit statuses"),
    "celery.platforms.close_open_fds": Relied(
        "(keep)", "a worker that is restarted by remote control keeps its former files open"
    ),
    "celery.platforms.signals": Relied("Signals", "SIGQUIT and remapped signals end a worker without a drain"),
    "celery.result.AsyncResult._cache": Relied("attribute", "a result that was read is read again; `aget` raises"),
    "celery.result.AsyncResult._maybe_reraise_parent_error": Relied(
        "(self)", "each parent of a chain is read by a statement of its own"
    ),
    "celery.result.AsyncResult._maybe_set_cache": Relied("(self, meta)", "as of `_cache`"),
    "celery.result.AsyncResult._on_fulfilled": Relied("(self, result)", "`result.then` is not called"),
    "celery.utils.collections.ChainMap.add_defaults": Relied(
        "(self, d)", "the engine's defaults rank above what the user configures"
    ),
    "celery.utils.collections.force_mapping": Relied("(m)", "configuration by an object or a module is not read"),
    "celery.utils.dispatch.Signal": Relied("class", "the engine's own signals"),
    "celery.utils.functional._regen": Relied(
        "class", "a chord's header made of a generator is read to its end before the first member is sent"
    ),
    "celery.utils.functional.maybe_list": Relied("(obj, scalars)", "remote control by one id"),
    "celery.utils.imports.load_extension_class_names": Relied(
        "(namespace)", "backends and worker steps of installed packages are not known"
    ),
    "celery.utils.imports.symbol_by_name": Relied(
        "(name, aliases, imp, package, sep, default, **kwargs)", "classes that are named in settings are not found"
    ),
    "celery.utils.log.ColorFormatter": Relied("class", "the log in JSON contains the colours of Celery's lines"),
    "celery.utils.log.get_multiprocessing_logger": Relied("()", "billiard's lines are not written in JSON"),
    "celery.utils.log.in_sighandler": Relied("()", "a line that is logged in a signal handler can lock the worker up"),
    "celery.utils.saferepr.saferepr": Relied(
        "(o, maxlen, maxlevels, seen)", "arguments in logs and dead letters are not shortened as Celery's"
    ),
    "celery.utils.serialization.UnpickleableExceptionWrapper": Relied(
        "class", "a retry of an exception that cannot be pickled hides that exception"
    ),
    "celery.utils.time.utcoffset": Relied("(time, localtime)", "Flower shows times of events in another zone"),
    "celery.worker.consumer.consumer.Consumer._get_connection_retry_type": Relied(
        "(self, is_connection_loss_on_startup)", "`broker_connection_retry` and its variant for the start are ignored"
    ),
    "celery.worker.consumer.control.Control": Relied("class", "commands of remote control are Celery's, of tickets"),
    "celery.worker.consumer.mingle.Mingle": Relied("class", "a worker waits a second at each reconnection"),
    "celery.worker.control.Panel": Relied("class", "commands of remote control that users add are not known"),
    "celery.worker.control.disable_events": Relied("(state)", "Flower's button to switch events"),
    "celery.worker.control.enable_events": Relied("(state)", "as of `disable_events`"),
    "celery.worker.control.nok": Relied("(value)", "refusals of remote control are not recognised"),
    "celery.worker.control.ok": Relied("(value)", "answers of remote control are not recognised"),
    "celery.worker.control.registered": Relied(
        "(state, taskinfoitems, builtins, **kwargs)", "`inspect registered` lists the tickets' task"
    ),
    "celery.worker.state.should_stop": Relied("attribute", "the loop does not notice a stop by signal: replaced"),
    "concurrent.futures.thread.ThreadPoolExecutor._max_workers": Relied(
        "attribute", "`pool_grow` and `pool_shrink` of threads and coroutines"
    ),
    "concurrent.futures.thread.ThreadPoolExecutor._threads": Relied(
        "attribute", "a pool that can begin no thread waits for ever"
    ),
    "django.db.transaction.Atomic._from_testcase": Relied(
        "attribute", "`run` and `drain` of `celeriac.testing` find nothing in Django's TestCase"
    ),
    "gevent.hub.LoopExit": Relied("class", "a child that a greenlet forked prints a traceback when it ends"),
    "gevent.socket.wait_read": Relied("(fileno, timeout, timeout_exc)", "no pool `-P gevent`"),
    "gevent.socket.wait_write": Relied("(fileno, timeout, timeout_exc, event)", "as with `wait_read`"),
    "kombu.messaging.Producer._prepare": Relied(
        "(self, body, serializer, content_type, content_encoding, compression, headers)",
        "where somebody has replaced `publish`, rows are encoded as messages first",
    ),
    "kombu.messaging.Producer._publish": Relied(
        "(self, body, priority, content_type, content_encoding, headers, properties, routing_key, mandatory, "
        "immediate, exchange, declare, timeout, confirm_timeout, retry, retry_policy)",
        "where somebody has replaced `publish`, tasks are sent to Redis instead of inserted",
    ),
    "kombu.transport.TRANSPORT_ALIASES": Relied("dict", "the transport `CELERIAC_REDIS=off` is not known"),
    "kombu.transport.redis.Channel._brpop_read": Relied("(self, **options)", "one malformed message ends a worker"),
    "kombu.transport.redis.Channel._connparams": Relied(
        "(self, asynchronous)", "each connection sends its name to Redis, in three round trips"
    ),
    "kombu.transport.redis.Channel._expires": Relied("attribute", "a queue that expires is bound for good"),
    "kombu.transport.redis.Channel._create_client": Relied("(self, asynchronous)", "a replica is taken for a master"),
    "kombu.transport.redis.Channel._delete": Relied(
        "(self, queue, exchange, routing_key, pattern, *args, **kwargs)",
        "an error of Redis while a channel closes ends a worker",
    ),
    "kombu.transport.redis.Channel._do_restore_message": Relied(
        "(self, payload, exchange, routing_key, pipe, leftmost)",
        "unacknowledged messages land on the queue of plain messages",
    ),
    "kombu.transport.redis.Channel._in_poll": Relied("bool", "a worker that backs off still takes a ticket"),
    "kombu.transport.redis.Channel._put_fanout": Relied(
        "(self, exchange, message, routing_key, **kwargs)", "remote control gets no answers, and reaches no workers"
    ),
    "kombu.transport.redis.Channel._q_for_pri": Relied(
        "(self, queue, pri)", "tickets and plain messages share one list"
    ),
    "kombu.transport.redis.Channel._queue_bind": Relied(
        "(self, exchange, routing_key, pattern, queue)", "a Redis that is full keeps workers from starting"
    ),
    "kombu.transport.redis.Channel._receive_one": Relied("(self, c)", "one malformed broadcast ends a worker"),
    "kombu.transport.redis.Channel._size": Relied("(self, queue)", "a key of a wrong type ends a worker"),
    "kombu.transport.redis.SentinelChannel._get_pool": Relied(
        "(self, asynchronous)", "a Sentinel that is down is tried for seconds, each time"
    ),
    "kombu.transport.virtual.base.Channel._inplace_augment_message": Relied(
        "(self, message, exchange, routing_key)", "wake-ups have no delivery information: they are dropped"
    ),
    "kombu.transport.virtual.base.Transport._avail_channels": Relied("attribute", "as of `_create_client`"),
    "kombu.transport.virtual.base.Transport._used_channel_ids": Relied(
        "attribute", "after 65,535 failed connections a worker has no ids left"
    ),
    "kombu.utils.functional.sleep": Relied("callable", "a wait for Redis blocks all greenlets of a worker: replaced"),
    "logging.Formatter._style": Relied("attribute", "each line about tasks is formatted by itself"),
    "logging.PercentStyle._fmt": Relied("attribute", "as of `_style`"),
    "sqlalchemy.dialects.postgresql.base.PGDialect._backslash_escapes": Relied(
        "bool", "as of `_get_server_version_info`"
    ),
    "sqlalchemy.dialects.postgresql.base.PGDialect._get_default_schema_name": Relied(
        "(self, connection)", "as of `_get_server_version_info`"
    ),
    "sqlalchemy.dialects.postgresql.base.PGDialect._get_server_version_info": Relied(
        "(self, connection)", "the first connection of each process takes four more round trips"
    ),
    "sqlalchemy.dialects.postgresql.base.PGDialect._set_backslash_escapes": Relied(
        "(self, connection)", "as of `_get_server_version_info`"
    ),
    "sqlalchemy.pool.QueuePool._pool": Relied(
        "attribute", "connections of `celeriac.awaiting` stay open when an app is closed from another thread"
    ),
}  # fmt: skip
