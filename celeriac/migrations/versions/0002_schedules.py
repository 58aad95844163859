"""Schedules with expressions, and priority aging.

Revision ID: celeriac_0002
"""

from __future__ import annotations

revision = "celeriac_0002"
down_revision = "celeriac_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing yet."""


def downgrade() -> None:
    """Nothing yet."""
