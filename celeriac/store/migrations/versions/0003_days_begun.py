"""The first id of each day, so that the directory of history lists only the other tasks; and what each routine was made
from.

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


def upgrade() -> None:
    op.get_bind().exec_driver_sql((HERE / "0003_days_begun.sql").read_text().replace("%", "%%"))


def downgrade() -> None:
    """Routines that need `days_begun` stay until the release before replaces them.

    Days that it has may have rows which the directory does not list: they are looked at one by one from then on.
    """
    op.execute("INSERT INTO celeriac.unlisted (day) SELECT day FROM celeriac.days_begun ON CONFLICT DO NOTHING")
    op.execute("DROP TABLE celeriac.days_begun, celeriac.routines")
