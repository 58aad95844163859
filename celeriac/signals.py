"""Signals beside Celery's own, connected to in the same way."""

from __future__ import annotations

from celery.utils.dispatch import Signal

#: A scheduled pass of a role's batcher is over, in the process that ran it (beat). `role`; `scheduled`: tasks it
#: published; `pending`: tasks of the role that were due, those included, counted up to 300,000. Its sender is the
#: role's name: connect with `sender="…"` to have them counted after the passes of that role alone.
pass_finished = Signal(name="pass_finished", providing_args={"role", "scheduled", "pending"})
