"""The audit trail, and enqueuing from SQL.

Revision ID: celeriac_0004
"""

from __future__ import annotations

revision = "celeriac_0004"
down_revision = "celeriac_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing yet."""


def downgrade() -> None:
    """Nothing yet."""
