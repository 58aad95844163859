"""Celery's result backend on rows: its tracer stores a result here, and that settles the row of the run under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.backends.base import BaseBackend
from kombu.exceptions import EncodeError
from sqlalchemy import text

from celeriac.errors import CeleriacError, NotSupported
from celeriac.run import run as running
from celeriac.run.outcomes import completed, failed, lost, retried
from celeriac.store import states
from celeriac.store.encoding import MOST_BYTES, Unfit, encoded, revived
from celeriac.store.failures import is_restart

if TYPE_CHECKING:
    from celeriac.app import Celeriac

META = text("""
SELECT status, result, error_message, completed_at, retry_count FROM celeriac.worker_tasks WHERE task_id = :task_id
""")


#: How an attempt ends. Celery tells of other states, too: that it began, and what a handler's `update_state` says.
ENDS = ("SUCCESS", "RETRY", "FAILURE")


def _is_a_hooks(run: running.Run, state: str) -> bool:
    """Whether it says that `on_failure` or `on_retry` failed, too: that changes nothing of what the attempt came to."""
    return state == "FAILURE" and run.outcome is not None and run.outcome.status != states.COMPLETED


class RowBackend(BaseBackend):
    """`AsyncResult` reads the row; a row that is gone (its role keeps none, or it was pruned) is PENDING to Celery."""

    app: Celeriac
    supports_autoexpire = True

    def store_result(self, task_id: str, result: Any, state: str, traceback: Any = None, **_: Any) -> Any:
        run = running.current()
        if run is None or run.task.task_id != task_id or state not in ENDS or _is_a_hooks(run, state):
            return result
        # What an attempt enqueued goes with it; what its hooks enqueue from here on belongs to its outcome.
        if state != "SUCCESS":
            run.follow_ups.clear()
            run.drop_session()
            run.traceback = None if traceback is None else str(traceback)
        run.outcome = {"SUCCESS": self._success, "RETRY": self._retry}.get(state, self._failure)(run, result)
        if run.opened is not None:
            self.app.settler.settle_with_session(run, run.opened)
        return result

    def _success(self, run: running.Run, result: Any) -> Any:
        try:
            return completed(run, encoded(result, MOST_BYTES))
        except Unfit as error:
            raise EncodeError(f"the result of {run.role.name} cannot be stored: {error}") from error

    def _retry(self, run: running.Run, error: Any) -> Any:
        return lost(run.task, error) if is_restart(error) else retried(run, error)

    def _failure(self, run: running.Run, error: Any) -> Any:
        return lost(run.task, error) if is_restart(error) else failed(run, error, self._told(error))

    def _told(self, error: Any) -> Any:
        """The error as JSON. One that cannot be told so still fails its task: then there is only its message."""
        try:
            return encoded(self.prepare_exception(error, "json"), MOST_BYTES)
        except Exception:
            return None

    def get_task_meta(self, task_id: str, cache: bool = True) -> dict[str, Any]:  # noqa: ARG002 - Celery's signature
        with self.app.database.statement() as connection:
            row = connection.execute(META, {"task_id": task_id}).one_or_none()
        if row is None:
            return {
                "task_id": task_id,
                "status": "PENDING",
                "result": None,
                "traceback": None,
                "children": [],
            }
        state = "RETRY" if row.status == states.PENDING and row.retry_count else states.CELERY[row.status]
        meta = {
            "task_id": task_id,
            "status": state,
            "traceback": None,
            "children": [],
            "date_done": row.completed_at,
        }
        return meta | {"result": revived(row.result) if state == "SUCCESS" else self._error(row)}

    def _error(self, row: Any) -> Any:
        """The exception that ended a failed task; of one stopped from outside there is only the message."""
        if row.result:
            return self.exception_to_python(revived(row.result))
        return None if row.error_message is None else CeleriacError(row.error_message)

    def get_state(self, task_id: str) -> str:
        return str(self.get_task_meta(task_id)["status"])

    def forget(self, task_id: str) -> None:
        """Rows are the record of what happened; their role's `keep` decides when they go."""

    def cleanup(self) -> None:
        """See `forget`."""

    def apply_chord(self, *_: Any, **__: Any) -> None:
        raise NotSupported("chord does not run on rows yet; nothing was enqueued")
