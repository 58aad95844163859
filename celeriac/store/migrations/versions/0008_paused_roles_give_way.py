"""Of those who wait for a lock key, one of a role that is not paused leads.

Revision ID: celeriac_0008
"""

from __future__ import annotations

from importlib import import_module

from alembic import op

revision = "celeriac_0008"
down_revision = "celeriac_0007"
branch_labels = None
depends_on = None

LEAD = """
CREATE OR REPLACE FUNCTION celeriac_lead(keys text[]) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    wanted text;
    promoted integer := 0;
BEGIN
    FOR wanted IN SELECT DISTINCT unnest(keys) ORDER BY 1 LOOP
        BEGIN
            UPDATE worker_tasks SET waits_for = NULL, updated_at = clock_timestamp()
            WHERE id = coalesce((
                SELECT id FROM worker_tasks
                WHERE waits_for = 'lock' AND lock_key = wanted
                    AND role <> ALL (ARRAY(SELECT r.role FROM roles r WHERE r.paused))
                ORDER BY priority DESC, scheduled_for, id
                LIMIT 1 FOR UPDATE SKIP LOCKED
            ), (
                SELECT id FROM worker_tasks
                WHERE waits_for = 'lock' AND lock_key = wanted
                ORDER BY priority DESC, scheduled_for, id
                LIMIT 1 FOR UPDATE SKIP LOCKED
            )) AND NOT EXISTS (
                SELECT FROM worker_tasks l
                WHERE l.lock_key = wanted AND l.waits_for IS NULL
                  AND l.status IN ('pending', 'claimed', 'running')
            );
            promoted := promoted + (CASE WHEN FOUND THEN 1 ELSE 0 END);
        EXCEPTION WHEN unique_violation OR lock_not_available THEN
            NULL;
        END;
    END LOOP;
    RETURN promoted;
END $$
"""


def upgrade() -> None:
    op.execute(LEAD)


def downgrade() -> None:
    op.execute(import_module("celeriac.store.migrations.versions.0001_tables").LEAD_FUNCTION)
