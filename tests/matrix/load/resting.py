"""A task that waits a little."""

import time

from celeriac import Celeriac

app = Celeriac("resting")


@app.task(role="rest", name="rest")
def rest() -> None:
    time.sleep(0.05)
