"""A lost task waits out its role's backoff before it runs again.

Revision ID: celeriac_0006
"""

from __future__ import annotations

from importlib import import_module

from alembic import op

revision = "celeriac_0006"
down_revision = "celeriac_0005"
branch_labels = None
depends_on = None

BACKOFF = """
CREATE OR REPLACE FUNCTION celeriac_backoff(backoff jsonb, retry integer) RETURNS double precision LANGUAGE sql AS $$
SELECT delay * CASE jsonb_typeof(backoff -> 'jitter')
        WHEN 'number' THEN 1 + CAST(backoff ->> 'jitter' AS double precision) * (2 * random() - 1)
        ELSE CASE WHEN CAST(backoff ->> 'jitter' AS boolean) THEN random() ELSE 1 END END
FROM (SELECT least(
    CAST(backoff ->> 'maximum' AS double precision),
    CAST(backoff ->> 'base' AS double precision) * power(CAST(2 AS double precision), least(retry, 64))
)) AS capped (delay)
$$
"""

RELEASE = """
CREATE OR REPLACE FUNCTION celeriac_release(
    held_ids bigint[], held_tokens uuid[], held_as text, event_kind text, reason text, by_whom text, is_loss boolean
) RETURNS TABLE (id bigint, role text, lock_key text, becomes text, leads boolean) LANGUAGE sql AS $$
WITH held AS (
    SELECT t.id, t.role, t.lock_key, t.status,
        CASE WHEN t.cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN is_loss AND t.losses + 1 >= coalesce(CAST(r.definition ->> 'max_losses' AS integer), 3) THEN 'failed'
            ELSE 'pending' END AS becomes,
        CASE WHEN is_loss THEN celeriac_backoff(r.definition -> 'backoff', t.losses) END AS delay
    FROM worker_tasks t LEFT JOIN roles r ON r.role = t.role
    WHERE t.id = ANY(held_ids) AND t.token = ANY(held_tokens) AND t.status = held_as
    ORDER BY t.id FOR UPDATE OF t SKIP LOCKED
), freed AS (
    SELECT *, becomes = 'pending' AND delay IS NOT NULL AS waits, becomes = 'pending' AND delay IS NULL AS leads
    FROM held
), updated AS (
    UPDATE worker_tasks t
    SET status = f.becomes, losses = t.losses + CASE WHEN is_loss THEN 1 ELSE 0 END,
        waits_for = CASE WHEN f.waits THEN 'time' END,
        scheduled_for = CASE WHEN f.waits
            THEN clock_timestamp() + f.delay * interval '1 second' ELSE t.scheduled_for END,
        token = NULL, claimed_at = NULL, started_at = NULL, deadline_at = NULL, worker_pid = NULL,
        completed_at = CASE WHEN f.becomes <> 'pending' THEN clock_timestamp() END,
        error_message = CASE WHEN f.becomes <> 'pending' THEN reason ELSE t.error_message END,
        updated_at = clock_timestamp()
    FROM freed f WHERE t.id = f.id
), told AS (
    INSERT INTO task_events (task, role, kind, from_status, to_status, by, why)
    SELECT f.id, f.role, event_kind, f.status, f.becomes, by_whom, reason FROM freed f
)
SELECT f.id, f.role, f.lock_key, f.becomes, f.leads FROM freed f
$$
"""

RECOVER = """
CREATE OR REPLACE FUNCTION recover_stale_tasks(minutes double precision DEFAULT 10)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    batch CONSTANT integer := 500;
    ids bigint[];
    tokens uuid[];
    recovered integer := 0;
BEGIN
    IF minutes <= 0 THEN
        RAISE EXCEPTION 'recover_stale_tasks: give minutes above 0, and more than lie between two heartbeats';
    END IF;
    LOOP
        SELECT array_agg(s.id), array_agg(s.token) INTO ids, tokens FROM celeriac_stale(batch, minutes) s;
        PERFORM celeriac_lead(array_agg(f.lock_key))
        FROM celeriac_release(
            ids, tokens, 'running', 'rescue', 'its worker fell silent', 'recover_stale_tasks', true) f
        WHERE NOT f.leads AND f.lock_key IS NOT NULL;
        recovered := recovered + coalesce(cardinality(ids), 0);
        EXIT WHEN coalesce(cardinality(ids), 0) < batch;
    END LOOP;
    RETURN recovered;
END $$
"""


def upgrade() -> None:
    op.execute("DROP FUNCTION celeriac_release")
    for statement in (BACKOFF, RELEASE, RECOVER):
        op.execute(statement)


def downgrade() -> None:
    before = import_module("celeriac.store.migrations.versions.0003_capacity")
    op.execute("DROP FUNCTION celeriac_release, celeriac_backoff")
    for statement in (before.RELEASE, before.RECOVER):
        op.execute(statement)
