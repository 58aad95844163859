"""Subreddits, posts and authors.

Revision ID: app_0004
"""

from __future__ import annotations

revision = "app_0004"
down_revision = "app_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing yet."""


def downgrade() -> None:
    """Nothing yet."""
