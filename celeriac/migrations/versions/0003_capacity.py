"""What workers report, and what capacity planning asks.

Revision ID: celeriac_0003
"""

from __future__ import annotations

revision = "celeriac_0003"
down_revision = "celeriac_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing yet."""


def downgrade() -> None:
    """Nothing yet."""
