"""A row of `worker_tasks` may be inserted with its `dispensary_id`.

Revision ID: app_0008
"""

from __future__ import annotations

from alembic import op

revision = "app_0008"
down_revision = "app_0007"
branch_labels = None
depends_on = None

INSERTED = """
CREATE FUNCTION worker_tasks_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    task celeriac.worker_tasks;
BEGIN
    IF NEW.dispensary_id IS NOT NULL THEN
        NEW.kwargs := jsonb_build_object('dispensary_id', NEW.dispensary_id) || coalesce(NEW.kwargs, '{}');
    END IF;
    INSERT INTO celeriac.worker_tasks
    SELECT * FROM jsonb_populate_record(CAST(NULL AS celeriac.worker_tasks), to_jsonb(NEW)) RETURNING * INTO task;
    NEW := jsonb_populate_record(NEW, to_jsonb(task));
    RETURN NEW;
END $$
"""

TRIGGER = """
CREATE TRIGGER worker_tasks_inserted INSTEAD OF INSERT ON worker_tasks
FOR EACH ROW EXECUTE FUNCTION worker_tasks_inserted()
"""


def upgrade() -> None:
    op.execute(INSERTED)
    op.execute(TRIGGER)


def downgrade() -> None:
    op.execute("DROP TRIGGER worker_tasks_inserted ON worker_tasks")
    op.execute("DROP FUNCTION worker_tasks_inserted")
