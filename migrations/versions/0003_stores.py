"""Dispensaries, products and what replaces the legacy job systems.

Revision ID: app_0003
"""

from __future__ import annotations

revision = "app_0003"
down_revision = "app_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing yet."""


def downgrade() -> None:
    """Nothing yet."""
