"""API tokens.

Revision ID: celeriac_0005
"""

from __future__ import annotations

revision = "celeriac_0005"
down_revision = "celeriac_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing yet."""


def downgrade() -> None:
    """Nothing yet."""
