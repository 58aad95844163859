"""A directory of history, so that looking up a finished task reads only its day, and vacuum settings by table.

Revision ID: celeriac_0002
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "celeriac_0002"
down_revision = "celeriac_0001"
branch_labels = None
depends_on = None

#: The tables whose vacuum is set.
VACUUMED = (
    "tasks", "ready_0", "ready_1", "ready_2", "later", "behind", "locks", "looks", "joins", "intake", "tickets",
    "batchers",
)  # fmt: skip
RESET = (
    "autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_analyze_scale_factor,"
    " autovacuum_vacuum_cost_delay"
)

HERE = Path(__file__).parent

#: Lists what ended before, while workers run, one day per transaction.
afterwards = ("CALL celeriac.list_history()",)


def upgrade() -> None:
    op.get_bind().exec_driver_sql((HERE / "0002_directory.sql").read_text().replace("%", "%%"))


def downgrade() -> None:
    """Routines that need these tables stay until the release before replaces them."""
    for trigger in ("history_listed", "history_relisted", "history_unlisted"):
        op.execute(f"DROP TRIGGER {trigger} ON celeriac.history")
    op.execute("DROP TABLE celeriac.ended, celeriac.unlisted, celeriac.dropped_days, celeriac.history_days CASCADE")
    for table in VACUUMED:
        op.execute(f"ALTER TABLE celeriac.{table} RESET ({RESET})")
