"""Celery's result backend on rows: when its tracer stores a result here, the row of the current run is settled."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from celery import current_task
from celery.app.task import Context
from celery.backends.base import BaseBackend
from celery.contrib.abortable import ABORTED
from celery.exceptions import NotRegistered
from celery.exceptions import TimeoutError as CeleryTimeoutError
from celery.result import GroupResult, result_from_tuple
from celery.states import ALL_STATES, PROPAGATE_STATES, READY_STATES
from celery.utils.functional import _regen
from kombu.exceptions import EncodeError
from kombu.utils.encoding import safe_repr
from redis import Redis
from sqlalchemy.exc import DBAPIError

from celeriac.canvas import rests
from celeriac.canvas.parts import Part, barrier_of, flattened
from celeriac.errors import BadValue, CeleriacError, EnqueueRefused, NotSupported
from celeriac.run import coroutines
from celeriac.run import run as running
from celeriac.run.outcomes import LONGEST_ERROR, described, storable
from celeriac.seam import producer, results, waiting
from celeriac.seam.app import ResultsApp
from celeriac.seam.poller import PATIENCE, SHORTEST, Poller, Progress
from celeriac.settle.tombstones import Tombstone
from celeriac.store import states
from celeriac.store.encoding import MOST_BYTES, Unfit, encoded
from celeriac.store.failures import is_locked
from celeriac.store.ids import fresh_id
from celeriac.store.patience import patient
from celeriac.store.redact import without

logger = logging.getLogger(__name__)

#: States that end an attempt. Celery also stores STARTED, and the states a handler gives to `update_state`.
ENDS = ("SUCCESS", "RETRY", "FAILURE")
#: States that are read from the row's own columns.
ROW_STATES = ("PENDING", "RECEIVED", "STARTED")

#: Maximum characters of a traceback that are stored: its end.
LONGEST_TRACEBACK = 16_000

#: Maximum number of results read in one statement.
PAGE = 1000


T = TypeVar("T")


def _storable(args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return a call's arguments if they can be stored as JSON, else empty ones."""
    try:
        positional, named = encoded([list(args), dict(kwargs)], MOST_BYTES)
    except Unfit:
        return [], {}
    return positional, named


async def _within(seconds: float | None, awaitable: Awaitable[T]) -> T:
    """Await it for at most `seconds`. Raises Celery's TimeoutError."""
    try:
        return await asyncio.wait_for(awaitable, seconds)
    except TimeoutError:
        raise CeleryTimeoutError("the result did not come in time") from None


def _is_eager(request: Any) -> bool:
    """Return whether the request is an eager call's, whose task has no row. No request: the current task's is used."""
    if request is None and current_task:
        request = current_task.request
    return bool(getattr(request, "is_eager", False))


def _is_a_hooks(run: running.Run, state: str) -> bool:
    """Return whether a hook failed (`on_failure`, `on_retry`), which does not change the attempt's outcome."""
    return state == "FAILURE" and run.outcome is not None and run.outcome.status != states.COMPLETED


class RowBackend(BaseBackend):
    """The result backend. `AsyncResult` reads the row; a row that is gone (not kept, or pruned) is PENDING to Celery.

    Chords store nothing here: each member's result is in its own row, and the body is another row, which waits.
    """

    app: ResultsApp
    supports_autoexpire = True
    supports_native_join = True

    #: True once a state that could not be stored was logged as a warning; later ones are logged at DEBUG.
    has_warned = False

    # -- the run under way ---------------------------------------------------------------------------------------------

    def store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **_: Any
    ) -> Any:
        run = running.current()
        if state == ABORTED:
            with self.app.database.statement() as connection:
                results.tell(connection, task_id, state)
            return result
        if run is None or run.task.task_id != task_id:
            if task_id is not None and not _is_eager(request):
                self._tell_of(task_id, result, state)
            return result
        if state not in ENDS:
            if state not in ROW_STATES:
                run.own_state = {results.STATE: state, results.STATE_META: result}
                run.progress(run.own_state, restarts_limit=False)
            return result
        if _is_a_hooks(run, state):
            return result
        if state == "SUCCESS":
            self.succeed(run, result)
            return result
        run.traceback = None if traceback is None else run.without_secrets(str(traceback))
        raised = run.raised if state == "FAILURE" and isinstance(run.raised, Exception) else result
        run.error_repr = run.without_secrets(safe_repr(raised), LONGEST_ERROR)
        if state == "RETRY":
            run.retry(result)
        else:
            run.fail(result, self._encoded_error(run, raised, run.traceback))
        return result

    def _tell_of(self, task_id: str, meta: Any, state: str) -> None:
        """Store a state that is set from outside the task's handler; log a warning for the first that cannot be stored.

        Raises BadValue for a meta that cannot be stored. Writes nothing while the row is locked.
        """
        if state in ALL_STATES:
            why = "that follows from its row"
        else:
            try:
                stored = encoded({results.STATE: state, results.STATE_META: meta}, MOST_BYTES)
            except Unfit as error:
                raise BadValue(f"task {task_id}: the meta of {state} cannot be stored: {error}") from None
            try:
                with patient(running.PATIENCE), self.app.database.statement() as connection:
                    if results.tell_of(connection, task_id, stored):
                        return
            except DBAPIError as error:
                if not is_locked(error):
                    raise
                logger.warning("The state %s of task %s is not written: somebody has locked its row", state, task_id)
                return
            why = "it has no row that is committed and unfinished"
        level = logging.DEBUG if self.has_warned else logging.WARNING
        self.has_warned = True
        logger.log(level, "The state %s of task %s is not kept: %s", state, task_id, why)

    def succeed(self, run: running.Run, result: Any) -> None:
        """Record that this run's handler has returned."""
        try:
            run.succeed(None if result is None else encoded(self.prepare_value(result), MOST_BYTES))
        except Unfit as error:
            run.is_hopeless = True  # the work is done, and repeating it would give the same result
            raise EncodeError(f"the result of {run.role.name} cannot be stored: {error}") from error
        if run.opened is not None:
            self.app.settler.settle_with_session(run, run.opened)

    def mark_as_done(
        self, task_id: str, result: Any, request: Any = None, store_result: bool = True, state: str = "SUCCESS"
    ) -> None:
        """End the row as a success. A result that the task ignores is not stored."""
        if (why := coroutines.unfinished(getattr(request, "task", None) or task_id, result)) is not None:
            raise EncodeError(why)
        self.store_result(task_id, result if store_result else None, state, request=request)

    def mark_as_failure(
        self, task_id: str, exc: Any, traceback: Any = None, request: Any = None, store_result: bool = True,  # noqa: ARG002
        call_errbacks: bool = True, state: str = "FAILURE",
    ) -> None:  # fmt: skip
        """Record a failure. Unless the task is retried, errbacks are called and the rest of its chain fails.

        An eager task, which has no row, fails as in Celery.
        """
        run = running.current()
        if run is None or run.task.task_id != task_id:
            super().mark_as_failure(task_id, exc, traceback, request, False, call_errbacks, state)
            return
        if _is_a_hooks(run, state):
            return
        self.store_result(task_id, exc, state, traceback=traceback, request=request)
        if request is None or run.outcome is None or run.outcome.status != states.FAILED:
            return
        self.spread(run, request, exc, traceback, call_errbacks=call_errbacks)
        run.note_spread()

    def spread(
        self, run: running.Run, request: Any, error: Any, traceback: Any = None, *, call_errbacks: bool = True
    ) -> None:
        """Fail the rest of the task's chain, and call its errbacks; one that cannot be called is logged."""
        for link in flattened(self._whole(getattr(request, "chain", None))):
            context = Context(link)
            context.update(link["options"])
            if (task_id := link["options"].get("task_id")) is not None:
                run.tombstones.append(self._tombstone(run, task_id, error, context))
        errbacks = request.errbacks if call_errbacks else None
        for errback in errbacks or ():
            request.errbacks = [errback]
            try:
                self._call_task_errbacks(request, error, traceback)
            except (EnqueueRefused, NotRegistered) as refused:
                logger.error("An errback of task %s cannot be called: %s", request.id, refused)
        request.errbacks = errbacks or request.errbacks

    def _whole(self, chain: Any) -> Any:
        """Return the whole chain: with those links, too, that are stored apart from the task's row and still exist."""
        if not any(map(rests.is_entry, chain or ())):
            return chain

        def read() -> list[Any]:
            with self.app.database.reading() as connection:
                return rests.whole(connection, chain)

        return coroutines.patiently(read, "read the links that are not to come")

    def refuse_link(self, run: running.Run, link: Any, chain: Any, refused: CeleriacError) -> None:
        """Fail the refused link, a task or a workflow, as a whole, and the links after it."""
        for task in flattened([link]):
            task["options"].setdefault("task_id", fresh_id())
        request = Context(id=link.options.get("task_id"), errbacks=link.options.get("link_error"))
        request.chain = [*(chain or ()), link]
        self._refuse(run, request, refused)

    def refuse(
        self, run: running.Run, refused: EnqueueRefused, headers: Any, args: Any, kwargs: Any, embedded: Any,
        part: Part | None,
    ) -> None:  # fmt: skip
        """Fail a refused task that was to follow the run; it never had a row."""
        request = Context(headers, errbacks=embedded.get("errbacks"))
        tombstone = self._tombstone(run, headers["id"], refused, request)
        barrier, place = (None, None) if part is None else (part.barrier, part.place)
        args, kwargs = _storable(args, kwargs)
        run.tombstones.append(replace(tombstone, args=args, kwargs=kwargs, barrier=barrier, place=place))
        request.chain = embedded.get("chain")
        self._refuse(run, request, refused)

    def _refuse(self, run: running.Run, request: Any, refused: CeleriacError) -> None:
        request.delivery_info = {}
        logger.error("What follows task %s is refused, and fails: %s", run.task.task_id, refused)
        run.is_linking = False
        try:
            self.spread(run, request, refused)
        finally:
            run.is_linking = True

    def mark_as_retry(
        self, task_id: str, exc: Any, traceback: Any = None, request: Any = None, store_result: bool = True,  # noqa: ARG002
        state: str = "RETRY",
    ) -> Any:  # fmt: skip
        return self.store_result(task_id, exc, state, traceback=traceback, request=request)

    def _encoded_error(self, run: running.Run, error: Any, traceback: str | None = None) -> Any:
        """Return the error as JSON, with its text in place of arguments that cannot be stored.

        None if nothing of it can be stored: the task then fails with its message alone.
        """
        try:
            fields = self._encoded_fields(error)
            if run.secret is not None:
                fields = {name: without(run.secrets, value) for name, value in fields.items()}
            return fields | ({"traceback": storable(traceback[-LONGEST_TRACEBACK:])} if traceback else {})
        except Exception:
            return None

    def _encoded_fields(self, error: Any) -> Any:
        fields = self.prepare_exception(error, "json")
        try:
            return encoded(fields, MOST_BYTES)
        except Unfit:
            message = str(described(error)).partition(": ")[2]
            return encoded(fields | {"exc_message": [message]}, MOST_BYTES)

    def _tombstone(self, run: running.Run, task_id: str, error: Any, request: Any) -> Tombstone:
        """Build the failed record of a link that never ran because the task before it failed.

        `request`: its signature's.
        """
        group = request.group or getattr(request, "group_id", None)
        why = run.without_secrets(str(described(error)), LONGEST_ERROR)
        return Tombstone(
            task_id=task_id, role=getattr(request, "task", None) or "", args=[], kwargs={},
            headers={"canvas": {"never_came": True}}, error=why, result=self._encoded_error(run, error),
            after=run.task.id, workflow=run.workflow or run.task.task_id,
            barrier=barrier_of(group) if request.chord else None, place=request.group_index if request.chord else None,
            account=run.task.account,
        )  # fmt: skip

    # -- results -------------------------------------------------------------------------------------------------------

    def get_task_meta(self, task_id: str, cache: bool = True) -> dict[str, Any]:  # noqa: ARG002 - Celery's signature
        with self.app.database.reading() as connection:
            meta = results.metas(connection, [task_id], self.exception_to_python)[task_id]
        return self.with_children(meta)

    _get_task_meta_for = get_task_meta

    def wait_for(
        self, task_id: str, timeout: float | None = None, interval: float = 0.5, no_ack: bool = True,  # noqa: ARG002
        on_interval: Callable[[], Any] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        return self.with_children(next(meta for _, meta in self._ended([task_id], timeout, interval, on_interval)))

    def with_children(self, meta: dict[str, Any]) -> dict[str, Any]:
        """Add the children of a task that has ended."""
        if meta["status"] not in READY_STATES:
            return meta | {"children": []}
        with self.app.database.reading() as connection:
            return meta | {"children": results.children(connection, meta["id"])}

    @cached_property
    def client(self) -> Any:
        """A client of the app's Redis for locks and caches, as Celery's own Redis backend has one.

        Raises NotSupported behind Sentinels.
        """
        url = str(self.app.redis_url)
        if not url.startswith(("redis://", "rediss://")):
            raise NotSupported("app.backend.client: behind Sentinels make a client with redis.sentinel.Sentinel")
        return Redis.from_url(url)

    @cached_property
    def poller(self) -> Poller:
        """The process's poller, which serves all its event loops."""
        return Poller(self._over, self._progress)

    def _progress(self, task_ids: Collection[str]) -> dict[str, Progress]:
        with self.app.database.reading() as connection:
            return results.progress(connection, task_ids)

    async def awaited(self, task_id: str, seconds: float | None, interval: float) -> dict[str, Any]:
        """Await the result on an event loop, as `wait_for` does; the task's children are not read."""
        return dict(await _within(seconds, self.poller.wait(task_id, interval)))

    async def progress_of(self, task_id: str, seconds: float | None, interval: float) -> AsyncIterator[Any]:
        """Yield each new progress of the task until it ends. Raises Celery's TimeoutError."""
        ends = None if seconds is None else time.monotonic() + seconds
        known = Progress(None, False)
        is_new = True
        while not known.is_over:
            left = None if ends is None else max(0.0, ends - time.monotonic())
            wait = self.poller.wait(task_id, interval, wants_progress=True, last=known.value, is_new=is_new)
            before, known, is_new = known, await _within(left, wait), False
            if known.value is not None and known.value != before.value:
                yield known.value

    def failed_of(self, task_ids: Iterable[str]) -> set[str]:
        """Return which of the tasks failed or were cancelled."""
        with self.app.database.reading() as connection:
            return results.failed(connection, task_ids)

    def get_many(
        self, task_ids: Iterable[str], timeout: float | None = None, interval: float = 0.5, no_ack: bool = True,  # noqa: ARG002
        on_message: Callable[[dict[str, Any]], Any] | None = None, on_interval: Callable[[], Any] | None = None,
        max_iterations: int | None = None,
    ) -> Iterator[tuple[str, dict[str, Any]]]:  # fmt: skip
        """Yield each task as it ends, without its children. Each poll reads all open tasks in one statement."""
        for task_id, meta in self._ended(task_ids, timeout, interval, on_interval, max_iterations):
            if on_message is not None:
                on_message(meta)
            yield task_id, meta

    def iter_native(self, result: Any, *args: Any, **options: Any) -> Iterator[Any]:
        """Yield members as they end. Once all have, what waits for the whole (`GroupResult.then`) is called."""
        yield from super().iter_native(result, *args, **options)
        if result.results:
            result.on_ready()

    def _ended(
        self, task_ids: Iterable[str], timeout: float | None, interval: float,
        on_interval: Callable[[], Any] | None, looks: int | None = None,
    ) -> Iterator[tuple[str, dict[str, Any]]]:  # fmt: skip
        """Yield tasks as they end. Polls often at first, later every `interval` seconds. Raises Celery's TimeoutError;
        CeleriacError for a task that comes only once the caller goes on.

        `on_interval` raises errors of parents, so it is called once more before a failure is yielded.
        """
        open_ids, began, waited = dict.fromkeys(task_ids), time.monotonic(), 0.0
        while open_ids:
            ask = on_interval if waited else None
            for task_id, meta in self._over(open_ids):
                if ask is not None and meta["status"] in PROPAGATE_STATES:
                    ask()
                    ask = None
                del open_ids[task_id]
                yield task_id, meta
            looks = None if looks is None else looks - 1
            if not open_ids or looks == 0:
                return
            if not waited:
                waiting.refuse(self.app, open_ids)
            if on_interval is not None:
                on_interval()
            waited = time.monotonic() - began
            if timeout is not None and waited >= timeout:
                raise CeleryTimeoutError(f"{len(open_ids)} of the results did not come within {timeout:g} s")
            nap = min(interval, max(SHORTEST, waited * PATIENCE))
            time.sleep(nap if timeout is None else min(nap, timeout - waited))

    def _over(self, task_ids: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the tasks that have ended, read `PAGE` rows at a time. A task retried in between is skipped."""
        with self.app.database.reading() as connection:
            over = results.over(connection, task_ids)
        for i in range(0, len(over), PAGE):
            with self.app.database.reading() as connection:
                metas = results.metas(connection, over[i : i + PAGE], self.exception_to_python)
            yield from ((task_id, meta) for task_id, meta in metas.items() if meta["date_done"] is not None)

    def forget(self, task_id: str) -> None:
        """Delete the task's row, unless a chord's body has yet to read it."""
        with self.app.database.statement() as connection:
            results.forget(connection, task_id)

    def cleanup(self) -> None:
        """Do nothing: roles' `keep` decides when rows are deleted."""

    # -- groups --------------------------------------------------------------------------------------------------------

    def _save_group(self, group_id: str, result: GroupResult) -> GroupResult:
        with self.app.database.statement() as connection:
            results.save_group(connection, group_id, result.as_tuple())
        return result

    def _restore_group(self, group_id: str) -> dict[str, Any] | None:
        with self.app.database.statement() as connection:
            saved = results.restore_group(connection, group_id)
        return None if saved is None else {"result": result_from_tuple(saved, self.app)}

    def _delete_group(self, group_id: str) -> None:
        with self.app.database.statement() as connection:
            results.delete_group(connection, group_id)

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Record how many results the body gets, while the members are published."""
        producer.count_places(barrier_of(group_id), chord_size)

    def apply_chord(self, header: tuple[str, Iterable[Any]], body: Any, **_: Any) -> None:  # noqa: ARG002
        """Record which members are groups. The body is published with the first member."""
        group_id, members = header
        if isinstance(members, _regen):
            producer.members_come(barrier_of(group_id))
        elif any(isinstance(member, GroupResult) for member in members):
            producer.keep_shape(barrier_of(group_id), results.shape(members))

    def add_to_chord(self, *_: Any) -> None:
        """Do nothing: the added task names its barrier itself."""
