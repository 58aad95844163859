"""The engine's tables: the rooms a task's life goes through, and what is known of roles, accounts and processes.

Revision ID: celeriac_0001
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "celeriac_0001"
down_revision = None
branch_labels = None
depends_on = None

HERE = Path(__file__).parent
FILES = ("0001_rooms.sql", "0001_roles.sql", "0001_schedules.sql", "0001_operations.sql")

DROP = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'celeriac' AND tablename <> 'version' LOOP
        EXECUTE format('DROP TABLE IF EXISTS celeriac.%I CASCADE', name);
    END LOOP;
    FOR name IN SELECT CAST(oid AS regprocedure) FROM pg_proc
        WHERE pronamespace = CAST('celeriac' AS regnamespace) LOOP
        EXECUTE 'DROP ROUTINE IF EXISTS ' || name || ' CASCADE';
    END LOOP;
    DROP TYPE IF EXISTS celeriac.receipt;
END $$
"""


def upgrade() -> None:
    for name in FILES:
        op.get_bind().exec_driver_sql((HERE / name).read_text().replace("%", "%%"))


def downgrade() -> None:
    """The schema stays, with Alembic's own table in it."""
    op.execute(DROP)
