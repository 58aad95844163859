"""Tasks whose role has two queues, for the tests of workers of either."""

from __future__ import annotations

from typing import Any

from celeriac import Celeriac, Task

app = Celeriac("lined")


@app.task(shared=False, bind=True, role="lined", queues=("lined", "lined-slow"), chunk=1)
def lined(self: Task[..., Any], moves_to: str = "") -> str:
    """Returns the queue it came from; `moves_to`: it is tried again from that one."""
    came_from = str(self.request.delivery_info["routing_key"])
    if moves_to and came_from != moves_to:
        raise self.retry(queue=moves_to, countdown=0)
    return came_from
