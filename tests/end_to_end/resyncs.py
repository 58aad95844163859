"""Tasks about somebody, for the tests of the log."""

from __future__ import annotations

import logging

from celeriac import Celeriac, Permanent

app = Celeriac("resyncs")


@app.task(role="product_resync", lock_by="dispensary_id", max_retries=0, shared=False)
def product_resync(dispensary_id: int, fail: bool = False, note: str = "") -> str:
    logging.getLogger("resyncs").info("looking at %d", dispensary_id)
    if fail:
        raise Permanent("the menu is gone")
    return f"{dispensary_id} {note}"
