"""A wall clock that is wrong: by as many seconds as stand in the file `FAULTS_ADRIFT`, from one moment to the next.

Python imports this as it starts, where this folder is on `PYTHONPATH`. Monotonic clocks stay, as they do when a
machine's clock is set. (libfaketime 0.9.10 breaks `time.sleep` of Python 3.11.)
"""

from __future__ import annotations

import os

if os.environ.get("FAULTS_ADRIFT"):
    import datetime
    import mmap
    import struct
    import time
    from typing import Any

    with open(os.environ["FAULTS_ADRIFT"], "rb") as opened:
        _shared = mmap.mmap(opened.fileno(), 8, prot=mmap.PROT_READ)

    _time, _time_ns, _datetime = time.time, time.time_ns, datetime.datetime

    def _adrift() -> float:
        (seconds,) = struct.unpack("d", _shared)
        return float(seconds)

    class _Meta(type):
        """What the C code of others makes are datetimes as well."""

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, _datetime)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, _datetime)

    class Datetime(_datetime, metaclass=_Meta):  # type: ignore[valid-type,misc]
        """Makes plain ones; what it says of now is adrift."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return _datetime(*args, **kwargs)

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return _datetime.now(tz) + datetime.timedelta(seconds=_adrift())

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    time.time = lambda: _time() + _adrift()
    time.time_ns = lambda: _time_ns() + int(_adrift() * 1e9)
    datetime.datetime = Datetime  # type: ignore[misc]
