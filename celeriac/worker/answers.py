"""Limit the size of remote control replies: whoever receives one drops a larger message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kombu.utils.json import dumps

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Bytes of JSON in a reply. It travels as base64 in an envelope of which 1,000,000 bytes are read (`seam/envelope.py`).
ROOM = 600_000


def fitting(rows: Sequence[T], *forms: Callable[[T], Any], room: int = ROOM) -> list[Any]:
    """Return each row in the first form that is no larger than its share of the room, else in the last,
    while there is room.

    Rows that are left out are logged, because a list has no place to mention them.
    """
    answer: list[Any] = []
    share = room // max(1, len(rows))
    for row in rows:
        form, size = _first_within(share, row, forms)
        if size > room:
            logger.warning(
                "inspect tells of %d of %d tasks: more would be too much for an answer", len(answer), len(rows)
            )
            break
        room -= size
        answer.append(form)
    return answer


def _first_within(share: int, row: T, forms: Sequence[Callable[[T], Any]]) -> tuple[Any, int]:
    for make in forms:
        form = make(row)
        size = len(dumps(form))
        if size <= share:
            break
    return form, size
