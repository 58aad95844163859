"""Who connects to `pass_finished` hears what a scheduled pass has published, and what is left."""

from __future__ import annotations

from typing import Any

from celeriac import Celeriac, signals
from celeriac.schedules import batcher
from celeriac.schedules.timetable import Timetable


def test_a_scheduled_pass_says_what_it_did(app: Celeriac) -> None:
    @app.task(role="passed", prompt=False, batch_size=2, shared=False)
    def work(n: int) -> None: ...

    app.register_roles()
    app.schedules = [batcher("passed")]
    timetable = Timetable(app)
    timetable.install()
    work.bulk([(n,) for n in range(5)])
    heard: list[dict[str, Any]] = []

    def hear(role: str, scheduled: int, queued: int, **_: Any) -> None:
        heard.append({"role": role, "scheduled": scheduled, "queued": queued})

    signals.pass_finished.connect(hear)
    timetable.run_now("batcher passed")
    signals.pass_finished.disconnect(hear)
    assert heard == [{"role": "passed", "scheduled": 2, "queued": 5}]
