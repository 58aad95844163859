"""A chord in the caller's transaction.

Celery's `chord.apply_async` has a parameter `connection` of its own, which it drops, and copies every other option into
the body, a session as well. So what names a transaction is taken out before; a chord of another app sees no difference.
"""

from __future__ import annotations

import time
from functools import wraps
from typing import Any

from celery.canvas import _chord

from celeriac.enqueue.calls import transaction_of
from celeriac.seam import producer as rows
from celeriac.seam.app import SeamApp

_apply_async = _chord.apply_async


def join_transactions(apps: type[SeamApp]) -> None:
    """Chords of apps of this class know `session` and `connection`, as their tasks and groups do."""

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

    _chord.apply_async = apply_async
