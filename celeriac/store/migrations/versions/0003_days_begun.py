"""Days by ids: the directory of history lists only what ids do not tell.

Revision ID: celeriac_0003
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "celeriac_0003"
down_revision = "celeriac_0002"
branch_labels = None
depends_on = None

HERE = Path(__file__).parent

# Days that began here have rows which no directory lists: without ids that tell them they are looked at one by one.
TAKE_BACK = """
INSERT INTO celeriac.unlisted (day) SELECT day FROM celeriac.days_begun ON CONFLICT DO NOTHING;
DROP TABLE celeriac.days_begun
"""


def upgrade() -> None:
    op.get_bind().exec_driver_sql((HERE / "0003_days_begun.sql").read_text().replace("%", "%%"))


def downgrade() -> None:
    """Routines that need this table stay until the release before replaces them."""
    op.execute(TAKE_BACK)
