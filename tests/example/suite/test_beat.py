"""A real beat beside a real worker."""

from __future__ import annotations

from conftest import until
from shop import journal


def test_what_is_due_is_done(worker, beat):
    pulses = until(lambda: len(found := journal.read("pulse", of="beat")) >= 2 and found, "two pulses")
    assert len(pulses) >= 2
    until(lambda: len(journal.read("carts cleared", days=2)) >= 2, "what was added when the app was configured")
    assert not journal.read("totalled", label="yesterday")
