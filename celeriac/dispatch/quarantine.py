"""Keys of Redis that hold something else than what they are for: renamed, so that work goes on and they can be seen."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import count
from typing import Any

from kombu.utils.encoding import bytes_to_str

logger = logging.getLogger(__name__)


def quarantine(client: Any, kinds: Mapping[str, str]) -> bool:
    """Renames each key that is there and not of its kind (`list`, `set`, `zset`); whether there was one."""
    renamed = [_renamed(client, key, kind) for key, kind in kinds.items()]
    return any(renamed)


def _renamed(client: Any, key: str, kind: str) -> bool:
    names = (f"celeriac:quarantine:{key}:{n}" for n in count(1))
    name = next(name for name in names if not client.exists(name))

    def rename(pipe: Any) -> str | None:
        actual = bytes_to_str(pipe.type(key))
        pipe.multi()
        if actual in (kind, "none"):
            return None
        pipe.renamenx(key, name)
        return actual

    # The key is watched: once another worker has renamed it, it may be a queue again.
    actual = client.transaction(rename, key, value_from_callable=True)
    if actual is not None:
        logger.error("The Redis key %r was a %s, not a %s: it is called %r now", key, actual, kind, name)
    return actual is not None
