"""The earliest revision whose release runs on this schema: it allows going back to a release that knows no later
revision.

A migration that an older release could not run on sets `runs_from` to its own revision; one that only adds leaves it.

Revision ID: celeriac_0007
"""

from __future__ import annotations

from alembic import op

revision = "celeriac_0007"
down_revision = "celeriac_0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE celeriac.version ADD runs_from text")
    op.execute("UPDATE celeriac.version SET runs_from = 'celeriac_0007'")


def downgrade() -> None:
    op.execute("ALTER TABLE celeriac.version DROP runs_from")
