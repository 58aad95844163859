"""The exporter: one reading for all scrapes, reused for a few seconds, as Prometheus' text."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from celeriac.alerts.review import rules_there_are
from celeriac.alerts.rules import FULL
from celeriac.metrics.catalogue import BY_NAME, PREFIX
from celeriac.metrics.read import ByRole, Samples, Scrape, compared, read
from celeriac.version import __version__

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

#: Seconds for which a reading is reused; maximum milliseconds of each of its statements; and milliseconds that a
#: statement waits for a lock: a locked table keeps no other from being read.
HOLDS, PATIENCE_MS, LOCK_PATIENCE_MS = 5.0, 2_000, 300

#: Seconds for which comparisons with the past are reused: alerts about these have to last for as long anyway.
COMPARED_HOLDS = 30.0


class Exporter:
    """The figures of SQL, and whether the reading succeeded. Thread-safe; a scrape during a reading waits for it."""

    def __init__(self, app: Celeriac) -> None:
        self.app = app
        self._rules = [rule.name for rules in rules_there_are(app).values() for rule in rules]
        self._turn = threading.Lock()
        self._until = self._compared_until = 0.0
        self._text = b""
        self._compared: ByRole = {}

    def text(self) -> bytes:
        with self._turn:
            if time.monotonic() >= self._until:
                self._text = as_text(self._read())
                self._until = time.monotonic() + HOLDS
            return self._text

    def _read(self) -> Samples:
        began = time.monotonic()
        samples = Samples()
        try:
            samples = self._ask()
        except SQLAlchemyError as error:
            logger.warning("Figures could not be read: %s", str(getattr(error, "orig", error)).partition("\n")[0])
        unread = samples.values.get("group_unread")
        samples.put("scrape_ok", unread is not None and not all(unread.values()))
        if self.app.settings.has_redis:
            questions = self.app.publisher.questions
            samples.put("redis_up", questions.answers())
            took = questions.answer_time()
            samples.put("redis_answer_seconds", took.seconds)
            samples.put("redis_round_trip_seconds", took.least)
            used = questions.memory_used()
            samples.put("redis_memory_ratio", used)
            samples.put("redis_refuses", used <= FULL and bool(self.app.publisher.refusal()))
        samples.put("build_info", 1, __version__)
        samples.put("scrape_duration_seconds", time.monotonic() - began)
        return samples

    def _ask(self) -> Samples:
        with self.app.database.reading() as connection:
            connection.exec_driver_sql(
                f"SET LOCAL statement_timeout = '{PATIENCE_MS} ms'; SET LOCAL lock_timeout = '{LOCK_PATIENCE_MS} ms'"
            )
            return read(
                Scrape(
                    connection, self._rules, self.app.settings.alert_wait, lambda: self._lately(connection),
                    self.app.migrations,
                )
            )  # fmt: skip

    def _lately(self, connection: Connection) -> ByRole:
        """Return what was compared with the past, anew only once in a while."""
        if time.monotonic() >= self._compared_until:
            self._compared = compared(connection)
            self._compared_until = time.monotonic() + COMPARED_HOLDS
        return self._compared


def as_text(samples: Samples) -> bytes:
    """Return the samples as text, in the order of the catalogue."""
    return generate_latest(_Collected(samples))


class _Collected(Collector):
    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def collect(self) -> Iterable[Family]:
        return list(_families(self.samples))


def _families(samples: Samples) -> Iterator[Family]:
    for name, metric in BY_NAME.items():
        family = Family((PREFIX + name).removesuffix("_total"), metric.meaning, metric.kind)
        for labels, value in samples.values.get(name, {}).items():
            family.add_sample(PREFIX + name, dict(zip(metric.labels, labels, strict=True)), value)
        for labels, (counts, seconds) in samples.histograms.get(name, {}).items():
            _add_histogram(family, metric.bounds, dict(zip(metric.labels, labels, strict=True)), counts, seconds)
        if family.samples:
            yield family


def _add_histogram(
    family: Family, of: Sequence[float], labels: dict[str, str], counts: Sequence[int], seconds: float
) -> None:
    """Add a histogram in Prometheus' form: each bucket includes those below."""
    bounds = [*(floatToGoString(bound) for bound in of), "+Inf"]
    for bound, n in zip(bounds, accumulate(counts), strict=True):
        family.add_sample(f"{family.name}_bucket", labels | {"le": bound}, n)
    family.add_sample(f"{family.name}_count", labels, sum(counts))
    family.add_sample(f"{family.name}_sum", labels, seconds)
