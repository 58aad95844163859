"""Agency websites and thumbnails.

Revision ID: app_0002
"""

from __future__ import annotations

revision = "app_0002"
down_revision = "app_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing yet."""


def downgrade() -> None:
    """Nothing yet."""
