"""The next time from which a role's tickets are counted, and the transaction that has to be over before it applies.

Revision ID: celeriac_0005
"""

from __future__ import annotations

from alembic import op

revision = "celeriac_0005"
down_revision = "celeriac_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE celeriac.batchers ADD held_next timestamptz, ADD held_xid xid8")


def downgrade() -> None:
    op.execute("ALTER TABLE celeriac.batchers DROP held_next, DROP held_xid")
