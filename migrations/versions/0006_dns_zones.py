"""Which zone is an account's, for tokens that see those of others as well.

Revision ID: app_0006
"""

from __future__ import annotations

from alembic import op

revision = "app_0006"
down_revision = "app_0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE dns_accounts ADD COLUMN zone TEXT")


def downgrade() -> None:
    op.execute("ALTER TABLE dns_accounts DROP COLUMN zone")
