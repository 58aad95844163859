"""Who is held back keeps neither a lock key nor a unique key from others: paused accounts give way, as paused roles do,
and what has expired makes way for the next request.

Revision ID: celeriac_0011
"""

from __future__ import annotations

from importlib import import_module

from alembic import op

revision = "celeriac_0011"
down_revision = "celeriac_0010"
branch_labels = None
depends_on = None

LEAD = """
CREATE OR REPLACE FUNCTION celeriac_lead(keys text[]) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    wanted text;
    turn integer;
    promoted integer := 0;
BEGIN
    FOR wanted, turn IN SELECT DISTINCT key, hashtext(key) & 1023 FROM unnest(keys) AS key ORDER BY 2, 1 LOOP
        BEGIN
            PERFORM pg_advisory_xact_lock(hashtext('celeriac lead'), turn);
            UPDATE worker_tasks SET waits_for = NULL, updated_at = clock_timestamp()
            WHERE id = coalesce((
                SELECT id FROM worker_tasks
                WHERE waits_for = 'lock' AND lock_key = wanted
                    AND role <> ALL (ARRAY(SELECT r.role FROM roles r WHERE r.paused))
                    AND (SELECT p.paused OR p.cap = 0 FROM account_policies p
                        WHERE p.account = worker_tasks.account) IS NOT TRUE
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

MAKE_WAY = """
CREATE OR REPLACE FUNCTION celeriac_make_way(task_role text, key text, by text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    expired worker_tasks;
BEGIN
    SELECT t.* INTO expired FROM worker_tasks t
    WHERE t.role = task_role AND t.unique_key = key AND t.status IN ('pending', 'claimed')
        AND t.expires_at <= clock_timestamp() FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE worker_tasks SET status = 'cancelled', waits_for = NULL, completed_at = clock_timestamp(),
        updated_at = clock_timestamp(), error_message = 'expired before it started'
    WHERE id = expired.id;
    INSERT INTO task_events (task, role, kind, from_status, to_status, by, why)
    VALUES (expired.id, task_role, 'expired', expired.status, 'cancelled', by, 'expired before it started');
    IF expired.lock_key IS NOT NULL AND expired.waits_for IS NULL THEN
        PERFORM celeriac_lead(ARRAY[expired.lock_key]);
    END IF;
    RETURN true;
END $$
"""

ENQUEUE = """
CREATE OR REPLACE FUNCTION celeriac_enqueue(
    role text,
    args jsonb DEFAULT '{}',
    priority integer DEFAULT NULL,
    scheduled_for timestamptz DEFAULT NULL,
    account text DEFAULT NULL,
    lock_key text DEFAULT NULL,
    unique_key text DEFAULT NULL,
    task_id text DEFAULT NULL,
    timeout double precision DEFAULT NULL,
    max_retries integer DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    enqueued_by text DEFAULT NULL
) RETURNS celeriac_receipt LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    declared roles;
    rule jsonb;
    call jsonb;
    task worker_tasks;
    receipt celeriac_receipt;
    century CONSTANT double precision := 100 * 365 * 86400.0;
BEGIN
    SELECT r.* INTO declared FROM roles r WHERE r.role = celeriac_enqueue.role;
    IF NOT FOUND THEN
        PERFORM celeriac_refuse('42704', 'no role ' || coalesce(quote_literal(celeriac_enqueue.role), 'NULL'),
            'Start a worker of the code that declares it, or check the spelling.');
    END IF;
    rule := declared.definition;
    task.role := declared.role;
    call := celeriac_bind(task.role, declared.parameters, celeriac_enqueue.args);
    PERFORM celeriac_readable(task.role, call - 'bound', coalesce((rule ->> 'max_argument_bytes')::bigint, 262144));

    task.account := celeriac_enqueue.account;
    IF task.account IS NULL THEN
        task.account := coalesce(celeriac_key(task.role, 'fair_by', rule ->> 'fair_by', call -> 'bound'), '');
    END IF;
    task.unique_key := celeriac_enqueue.unique_key;
    IF task.unique_key IS NULL THEN
        task.unique_key := celeriac_key(task.role, 'unique_by', rule ->> 'unique_by', call -> 'bound');
    END IF;
    task.lock_key := celeriac_enqueue.lock_key;
    IF task.lock_key IS NULL THEN
        task.lock_key := CASE WHEN position('{' IN rule ->> 'lock_by') = 0 THEN (rule ->> 'lock_by') || ':' ELSE '' END
            || celeriac_key(task.role, 'lock_by', rule ->> 'lock_by', call -> 'bound');
    END IF;

    task.task_id := coalesce(celeriac_enqueue.task_id, gen_random_uuid()::text);
    task.enqueued_by := coalesce(celeriac_enqueue.enqueued_by, 'sql:' || session_user);
    task.priority := coalesce(celeriac_enqueue.priority, (rule ->> 'priority')::integer);
    task.max_retries := coalesce(celeriac_enqueue.max_retries, (rule ->> 'max_retries')::integer);
    task.scheduled_for := coalesce(celeriac_enqueue.scheduled_for, statement_timestamp());
    PERFORM celeriac_fits(task.role, octet_length(k.given) <= 1000, k.option, k.given,
        'Give a text of at most 1000 bytes.')
    FROM (VALUES ('account', task.account), ('lock_key', task.lock_key), ('unique_key', task.unique_key),
        ('task_id', task.task_id), ('enqueued_by', task.enqueued_by)) AS k (option, given);
    PERFORM celeriac_fits(task.role, task.task_id <> '', 'task_id', '', 'Give a text that is not empty, or none.');
    PERFORM celeriac_fits(task.role, task.priority BETWEEN p.lowest AND p.highest, 'priority', task.priority::text,
        'Give a whole number from ' || p.lowest || ' to ' || p.highest || '.')
    FROM (VALUES (coalesce((rule #>> '{priority_range,0}')::integer, -1000000),
        coalesce((rule #>> '{priority_range,1}')::integer, 1000000))) AS p (lowest, highest);
    PERFORM celeriac_fits(task.role, task.max_retries BETWEEN 0 AND 1000000, 'max_retries', task.max_retries::text,
        'Give 0 to 1,000,000.');
    PERFORM celeriac_fits(task.role, timeout > 0 AND timeout <= century, 'timeout', timeout::text,
        'Give seconds above 0, at most 100 years.');
    PERFORM celeriac_fits(task.role, t.given BETWEEN '0001-01-02' AND '9999-12-30', t.option, t.given::text,
        'Give a time in the years 1 to 9999.')
    FROM (VALUES ('scheduled_for', task.scheduled_for), ('expires_at', celeriac_enqueue.expires_at))
        AS t (option, given);

    receipt.task_id := task.task_id;
    FOR attempt IN 1..100 LOOP
        INSERT INTO worker_tasks (
            task_id, role, account, lock_key, unique_key, priority, args, kwargs, scheduled_for, expires_at,
            max_retries, max_tries, timeout, enqueued_by, waits_for
        ) VALUES (
            task.task_id, task.role, task.account, task.lock_key, task.unique_key, task.priority, call -> 'args',
            call -> 'kwargs', task.scheduled_for, celeriac_enqueue.expires_at, task.max_retries,
            (rule ->> 'max_tries')::integer, celeriac_enqueue.timeout, task.enqueued_by,
            CASE
                WHEN task.scheduled_for > statement_timestamp() THEN 'time'
                WHEN (SELECT true FROM worker_tasks l
                    WHERE l.lock_key = task.lock_key AND l.waits_for IS NULL
                        AND l.status IN ('pending', 'claimed', 'running') LIMIT 1) THEN 'lock'
            END
        ) ON CONFLICT DO NOTHING RETURNING id INTO receipt.id;
        receipt.is_new := FOUND;
        EXIT WHEN FOUND;
        CONTINUE WHEN celeriac_make_way(task.role, task.unique_key, task.enqueued_by);
        SELECT t.id, t.task_id, false INTO receipt FROM (
            (SELECT id, task_id FROM worker_tasks WHERE task_id = task.task_id)
            UNION ALL
            (SELECT id, task_id FROM worker_tasks
                WHERE role = task.role AND unique_key = task.unique_key AND status IN ('pending', 'claimed', 'running'))
            LIMIT 1
        ) AS t;
        EXIT WHEN FOUND;
        receipt.task_id := task.task_id;
    END LOOP;
    IF receipt.id IS NULL THEN
        PERFORM celeriac_refuse('40001', task.role || ': its keys were taken and free again 100 times', 'Try again.');
    END IF;
    RETURN receipt;
END $$
"""

FIXED_PATH = """
DO $$ BEGIN
    EXECUTE 'ALTER FUNCTION celeriac_enqueue SET search_path = ' || quote_ident(current_schema()) || ', pg_temp';
END $$
"""


def upgrade() -> None:
    for statement in (LEAD, MAKE_WAY, ENQUEUE, FIXED_PATH):
        op.execute(statement)


def downgrade() -> None:
    op.execute(import_module("celeriac.store.migrations.versions.0009_turns_at_a_lock").LEAD)
    op.execute(import_module("celeriac.store.migrations.versions.0004_surfaces").ENQUEUE)
    op.execute(FIXED_PATH)
    op.execute("DROP FUNCTION celeriac_make_way")
