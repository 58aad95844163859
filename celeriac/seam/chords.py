"""Two changes to Celery's `chord`, for Celeriac's apps only; chords of other apps stay as they are.

1. A chord can be enqueued in the caller's transaction. Celery's `chord.apply_async` drops the option `connection` and
   copies every other one, a session too, into the body. So the transaction is taken out of the options first.
2. Members are frozen once. Celery freezes a header's tasks to learn their ids; then `group.apply_async` copies each
   with all its options, the body among them, and freezes it again, which takes a quarter of a member's cost.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import wraps
from itertools import repeat
from typing import Any

from celery.canvas import _chord, group
from celery.utils.functional import _regen

from celeriac.enqueue.calls import transaction_of
from celeriac.seam import producer as rows
from celeriac.seam.app import SeamApp

_apply_async = _chord.apply_async
_run = _chord.run


class _Header(group):
    """A header whose frozen tasks are sent as they are: they are copies already."""

    _results: Sequence[Any]

    def _freeze_group_tasks(self, *args: Any, **kwargs: Any) -> Any:
        frozen = super()._freeze_group_tasks(*args, **kwargs)
        self._results = frozen[1]
        return frozen

    def _prepared(self, tasks: Iterable[Any], _partial: Any, group_id: Any, *_: Any, **__: Any) -> Iterator[Any]:
        return zip(tasks, self._results, repeat(group_id))


def adapt_chords(apps: type[SeamApp]) -> None:
    """Make chords of these apps accept `session` and `connection`, and freeze each member once."""

    @wraps(_apply_async)
    def apply_async(
        self: Any, args: Any = None, kwargs: Any = None, task_id: Any = None, producer: Any = None,
        publisher: Any = None, connection: Any = None, *more: Any, **options: Any,
    ) -> Any:  # fmt: skip
        began = time.monotonic()  # the next line may read the header's generator
        if not isinstance(self.app, apps):
            return _apply_async(self, args, kwargs, task_id, producer, publisher, connection, *more, **options)
        bound = transaction_of("chord", options.pop("session", None), connection)
        with rows.unit(self.app, producer) as unit:
            unit.bound, unit.began = unit.bound if bound is None else bound, min(unit.began, began)
            return _apply_async(self, args, kwargs, task_id, producer, publisher, None, *more, **options)

    @wraps(_run)
    def run(self: Any, header: Any, *args: Any, **options: Any) -> Any:
        # A generator's tasks are frozen as they come, and must not be taken from it before they are sent.
        if isinstance(self.app, apps) and type(header) is group and not isinstance(header.tasks, _regen):
            header.__class__ = _Header
        return _run(self, header, *args, **options)

    _chord.apply_async = apply_async
    _chord.run = run
