-- Puts a row of the view where it belongs, as it says: `status`, `waits_for`, `token` and what goes with them.
CREATE OR REPLACE FUNCTION celeriac.enter(task celeriac.worker_tasks) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    current_seg CONSTANT smallint := (SELECT seg FROM celeriac.ring);
    unreadable CONSTANT text := (
        SELECT t.name FROM (VALUES ('scheduled_for', task.scheduled_for), ('expires_at', task.expires_at),
            ('created_at', task.created_at), ('claimed_at', task.claimed_at), ('started_at', task.started_at),
            ('last_heartbeat_at', task.last_heartbeat_at), ('cancel_requested_at', task.cancel_requested_at),
            ('completed_at', task.completed_at)) AS t (name, given)
        WHERE t.given NOT BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00' LIMIT 1);
    lane CONSTANT text := celeriac.lane(task.role, task.queue);
    head bigint;
BEGIN
    IF task.status = 'pending' AND task.waits_for IS NULL AND task.headers -> 'canvas' ? 'awaits' THEN
        task.waits_for := 'members';
    END IF;
    IF task.waits_for NOT IN ('time', 'lock', 'account', 'members') OR task.waits_for IS NOT NULL AND task.status <> 'pending' THEN
        RAISE check_violation USING MESSAGE = 'a ' || task.status || ' task does not wait for '
            || quote_literal(task.waits_for), HINT = 'Only a pending task waits: for time, lock, account or members.';
    END IF;
    IF unreadable IS NOT NULL THEN
        RAISE check_violation USING MESSAGE = unreadable || ' is no time in the years 1 to 9999',
            HINT = 'Nobody could read the row any more.';
    END IF;
    IF EXISTS (SELECT FROM celeriac.history_named(ARRAY[task.task_id]))
        OR EXISTS (SELECT FROM celeriac.tasks t WHERE t.task_id = task.task_id) THEN
        RAISE unique_violation USING MESSAGE = 'another task has the task_id ' || quote_literal(task.task_id);
    END IF;
    IF task.status IN ('completed', 'failed', 'cancelled') THEN
        INSERT INTO celeriac.history (
            id, task_id, role, account, lock_key, unique_key, status, priority, aged, scheduled_for, expires_at, args,
            kwargs, headers, worker_id, worker_pid, claimed_at, started_at, completed_at, progress, result,
            error_message, retry_count, max_retries, tries, max_rounds, losses, timeout, parent_id, enqueued_by,
            created_at, workflow, barrier, place, queue)
        VALUES (
            task.id, task.task_id, task.role, task.account, task.lock_key, task.unique_key, task.status, task.priority,
            task.aged, task.scheduled_for, task.expires_at, task.args, task.kwargs, task.headers, task.worker_id,
            task.worker_pid, task.claimed_at, task.started_at, coalesce(task.completed_at, clock_timestamp()),
            task.progress, task.result, task.error_message, task.retry_count, task.max_retries, task.tries,
            task.max_rounds, task.losses, task.timeout, task.parent_id, task.enqueued_by, task.created_at,
            task.workflow, task.barrier, task.place, task.queue);
        INSERT INTO celeriac.joins (barrier) SELECT task.barrier WHERE task.barrier IS NOT NULL;
        RETURN;
    END IF;
    IF task.completed_at IS NOT NULL AND task.status <> 'pending' THEN
        RAISE check_violation USING MESSAGE = 'an unfinished task has no completed_at';
    END IF;
    INSERT INTO celeriac.tasks (
        id, task_id, role, account, lock_key, unique_key, priority, aged, scheduled_for, expires_at, args, kwargs,
        headers, retry_count, max_retries, tries, max_rounds, losses, timeout, parent_id, enqueued_by, progress,
        error_message, started_at, cancel_requested_at, created_at, workflow, barrier, place, queue)
    VALUES (
        task.id, task.task_id, task.role, task.account, task.lock_key, task.unique_key, task.priority, task.aged,
        task.scheduled_for, task.expires_at, task.args, task.kwargs, task.headers, task.retry_count, task.max_retries,
        task.tries, task.max_rounds, task.losses, task.timeout, task.parent_id, task.enqueued_by, task.progress,
        task.error_message, CASE WHEN task.status = 'pending' THEN task.started_at END, task.cancel_requested_at,
        task.created_at, task.workflow, task.barrier, task.place, task.queue);
    IF task.status IN ('claimed', 'running') THEN
        IF task.token IS NULL OR (task.status = 'running') <> (task.worker_id IS NOT NULL) THEN
            RAISE check_violation USING MESSAGE = 'a ' || task.status || ' task has a token, and a worker only if it runs',
                HINT = 'Give token, worker_id, worker_pid, started_at and last_heartbeat_at as its ticket has them.';
        END IF;
        INSERT INTO celeriac.tickets (
            token, role, ids, accounts, worker_id, worker_pid, claimed_at, started_at, heartbeat_at)
        VALUES (task.token, lane, ARRAY[task.id], ARRAY[task.account], task.worker_id, task.worker_pid,
            coalesce(task.claimed_at, clock_timestamp()),
            CASE WHEN task.status = 'running' THEN coalesce(task.started_at, clock_timestamp()) END,
            CASE WHEN task.status = 'running' THEN coalesce(task.last_heartbeat_at, clock_timestamp()) END)
        ON CONFLICT (token) DO UPDATE
        SET ids = tickets.ids || excluded.ids, accounts = tickets.accounts || excluded.accounts,
            worker_id = excluded.worker_id, worker_pid = excluded.worker_pid, claimed_at = excluded.claimed_at,
            started_at = excluded.started_at, heartbeat_at = excluded.heartbeat_at;
    ELSIF task.status <> 'pending' THEN
        RAISE check_violation USING MESSAGE = 'there is no status ' || quote_nullable(task.status),
            HINT = 'Give pending, claimed, running, completed, failed or cancelled.';
    ELSIF task.token IS NOT NULL THEN
        RAISE check_violation USING MESSAGE = 'a task that waits has no token';
    ELSIF task.waits_for = 'time' THEN
        INSERT INTO celeriac.later (role, account, due_at, id, began)
        VALUES (lane, task.account, task.scheduled_for, task.id,
            task.started_at IS NOT NULL AND (task.retry_count > 0 OR task.tries = 0));
        RETURN;
    ELSIF task.waits_for = 'account' THEN
        INSERT INTO celeriac.parked (account, role, priority, due_at, id)
        VALUES (task.account, lane, task.priority, task.scheduled_for, task.id);
        RETURN;
    ELSIF task.waits_for = 'members' THEN
        IF task.headers -> 'canvas' -> 'awaits' IS NULL THEN
            RAISE check_violation USING MESSAGE = 'a task that waits for members says in its headers for whose';
        END IF;
        INSERT INTO celeriac.barriers (id, barrier, role)
        VALUES (task.id, CAST(task.headers -> 'canvas' ->> 'awaits' AS uuid), task.role);
        INSERT INTO celeriac.joins (barrier) VALUES (CAST(task.headers -> 'canvas' ->> 'awaits' AS uuid));
        RETURN;
    END IF;
    -- A ticket from before the time from which passes count them.
    UPDATE celeriac.batchers SET held_since = '-infinity', held_next = NULL, held_xid = NULL
    WHERE role = lane AND greatest(held_since, held_next) > task.claimed_at;
    IF task.lock_key IS NOT NULL AND task.waits_for IS NULL THEN
        INSERT INTO celeriac.locks AS l (lock_key, head) VALUES (task.lock_key, task.id) ON CONFLICT DO NOTHING
        RETURNING l.head INTO head;
        IF head IS NULL AND task.status <> 'pending' THEN
            RAISE unique_violation USING MESSAGE = 'the lock key ' || quote_literal(task.lock_key) || ' has a head';
        END IF;
    END IF;
    IF task.status = 'pending' AND (task.waits_for = 'lock' OR task.lock_key IS NOT NULL AND head IS NULL) THEN
        INSERT INTO celeriac.behind (lock_key, priority, due_at, id, role, account)
        VALUES (task.lock_key, task.priority, task.scheduled_for, task.id, lane, task.account);
        INSERT INTO celeriac.looks (lock_key) VALUES (task.lock_key);
    ELSIF task.status = 'pending' THEN
        INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id, losses)
        VALUES (current_seg, lane, task.account, task.priority, task.scheduled_for, task.id,
            least(task.losses, 9));
    END IF;
END $$;

-- The queue of a row to be written: null where it is the role's first. One that the role does not list is refused.
CREATE OR REPLACE FUNCTION celeriac.other_queue(of_role text, rule jsonb, queue text) RETURNS text LANGUAGE plpgsql
IMMUTABLE AS $$
BEGIN
    IF queue IS NULL OR queue = coalesce(rule ->> 'queue', of_role) THEN
        RETURN NULL;
    END IF;
    IF rule -> 'queues' ? queue THEN
        RETURN queue;
    END IF;
    RAISE invalid_parameter_value USING MESSAGE = of_role || ': no worker takes its tasks from the queue ' || quote_literal(queue),
        HINT = 'Its code declares ' || coalesce(CASE WHEN rule ? 'queues' THEN rule ->> 'queues' END, rule ->> 'queue', of_role) || '.';
END $$;

-- A row to be inserted, with what its role's rules give where it says nothing: keys, priority, retries. Arguments that do
-- not fit the handler give no keys: it never runs. Where SQL cannot tell what Python would write, it asks for the key.
CREATE OR REPLACE FUNCTION celeriac.by_the_rules(task celeriac.worker_tasks) RETURNS celeriac.worker_tasks
LANGUAGE plpgsql AS $$
DECLARE
    declared celeriac.roles;
    rule jsonb;
    bound jsonb;
BEGIN
    task.task_id := coalesce(task.task_id, celeriac.fresh_id());
    SELECT r.* INTO declared FROM celeriac.roles r WHERE r.role = task.role;
    IF NOT FOUND OR coalesce(task.status, 'pending') <> 'pending' OR task.headers ? 'canvas' THEN
        RETURN task;
    END IF;
    rule := declared.definition;
    task.queue := celeriac.other_queue(task.role, rule, task.queue);
    task.priority := coalesce(task.priority, CAST(rule ->> 'priority' AS integer));
    task.max_retries := coalesce(task.max_retries, CAST(rule ->> 'max_retries' AS integer));
    task.max_rounds := coalesce(task.max_rounds, CAST(rule ->> 'max_rounds' AS integer));
    IF coalesce(rule ->> 'fair_by', rule ->> 'lock_by', rule ->> 'unique_by') IS NULL THEN
        RETURN task;
    END IF;
    BEGIN
        bound := celeriac.bind(task.role, declared.parameters, CASE WHEN coalesce(task.kwargs, '{}') = '{}'
                THEN coalesce(nullif(task.args, '[]'), '{}')
                ELSE celeriac.named(coalesce(task.args, '[]'), declared.parameters) || task.kwargs END) -> 'bound';
    EXCEPTION WHEN invalid_parameter_value THEN
        RETURN task;
    END;
    task.account := coalesce(task.account, celeriac.key(task.role, 'fair_by', rule ->> 'fair_by', bound));
    task.lock_key := coalesce(task.lock_key, celeriac.lock_of(task.role, rule, bound));
    task.unique_key := coalesce(task.unique_key, celeriac.unique_of(task.role, rule, bound, task.scheduled_for));
    RETURN task;
END $$;

-- The bounds of texts that every call has: what is longer, or an empty task_id, no other surface could ask for.
CREATE OR REPLACE FUNCTION celeriac.refuse_unfit(task celeriac.worker_tasks) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    long CONSTANT text := (
        SELECT k.option || '=' || left(quote_literal(k.given), 100)
        FROM (VALUES ('task_id', task.task_id), ('account', task.account), ('lock_key', task.lock_key),
            ('unique_key', task.unique_key)) AS k (option, given)
        WHERE octet_length(k.given) > 1000 LIMIT 1);
BEGIN
    IF long IS NOT NULL THEN
        RAISE check_violation USING MESSAGE = task.role || ': ' || long
            || ': give a text of at most 1000 bytes without NUL';
    END IF;
    IF task.task_id = '' THEN
        RAISE check_violation USING MESSAGE = task.role || ': task_id='''': give a text that is not empty, or none';
    END IF;
END $$;

-- One row more that the statement of now writes. A statement over many rows holds them all until its end: beyond
-- `celeriac.most_rows` it is refused. What a function or another view's trigger writes row by row counts as one statement.
CREATE OR REPLACE FUNCTION celeriac.one_more_row(
    action text, old_row celeriac.worker_tasks, new_row celeriac.worker_tasks
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    this_one CONSTANT text := extract(epoch FROM statement_timestamp());
    before CONSTANT text := coalesce(current_setting('celeriac.rows_written', true), '');
    written CONSTANT integer := 1 + CASE WHEN split_part(before, ' ', 1) = this_one
        THEN CAST(split_part(before, ' ', 2) AS integer) ELSE 0 END;
    most CONSTANT integer := coalesce(nullif(current_setting('celeriac.most_rows', true), ''), '10000');
BEGIN
    IF written > most THEN
        RAISE program_limit_exceeded USING
            MESSAGE = 'this ' || action || ' is of more than ' || most || ' rows of worker_tasks, and would hold them all',
            HINT = format('Run `celeriac tasks %s --role %s`, which goes on in small transactions, or SET LOCAL '
                'celeriac.most_rows = 1000000 first.', CASE
                WHEN action = 'DELETE' OR new_row.status = 'cancelled' AND old_row.status <> 'cancelled' THEN 'cancel'
                WHEN new_row.status = 'pending' AND old_row.status <> 'pending' THEN 'retry'
                ELSE format('prioritise %s', new_row.priority) END, old_row.role);
    END IF;
    PERFORM set_config('celeriac.rows_written', this_one || ' ' || written, true);
END $$;

-- The view can be written to, for whoever has psql and nothing else: the row goes where its new values say. What would
-- break an invariant is refused.
CREATE OR REPLACE FUNCTION celeriac.worker_tasks_written() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    keys text[];
    rule jsonb;
BEGIN
    IF celeriac.is_instants(NEW.task_id) AND (TG_OP = 'INSERT' OR NEW.task_id <> OLD.task_id) THEN
        RAISE check_violation USING MESSAGE = quote_literal(NEW.task_id) || ' is the id of a schedule''s task',
            HINT = 'Give another: what ends in @ and an instant are ids of schedules.';
    END IF;
    IF TG_OP = 'INSERT' THEN
        NEW := celeriac.by_the_rules(NEW);
        NEW.id := coalesce(NEW.id, nextval('celeriac.tasks_id_seq'));
        NEW.account := coalesce(NEW.account, '');
        NEW.status := coalesce(NEW.status, 'pending');
        NEW.priority := coalesce(NEW.priority, 0);
        NEW.aged := coalesce(NEW.aged, 0);
        NEW.scheduled_for := coalesce(NEW.scheduled_for, statement_timestamp());
        NEW.args := coalesce(NEW.args, '[]');
        NEW.kwargs := coalesce(NEW.kwargs, '{}');
        NEW.retry_count := coalesce(NEW.retry_count, 0);
        NEW.tries := coalesce(NEW.tries, 0);
        NEW.max_rounds := coalesce(NEW.max_rounds, 1);
        NEW.losses := coalesce(NEW.losses, 0);
        NEW.created_at := coalesce(NEW.created_at, statement_timestamp());
        PERFORM celeriac.refuse_unfit(NEW);
        PERFORM celeriac.enter(NEW);
        RETURN NEW;
    END IF;
    PERFORM celeriac.one_more_row(TG_OP, OLD, NEW);
    PERFORM celeriac.hold(ARRAY[OLD.id], false);
    keys := celeriac.leave(ARRAY[OLD.id]);
    DELETE FROM celeriac.tasks WHERE id = OLD.id;
    PERFORM FROM celeriac.forget(ARRAY[OLD.id]);
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.role, NEW.queue) IS DISTINCT FROM (OLD.role, OLD.queue) THEN
            rule := (SELECT definition FROM celeriac.roles WHERE role = NEW.role);
            -- Another role's first, where it has no queue of that name.
            NEW.queue := celeriac.other_queue(NEW.role, rule, CASE
                WHEN NEW.queue IS DISTINCT FROM OLD.queue OR rule -> 'queues' ? NEW.queue THEN NEW.queue END);
        END IF;
        IF OLD.status IN ('completed', 'failed', 'cancelled') AND NEW.status = 'pending' THEN
            NEW.completed_at := NULL;
        ELSIF NEW.status = 'pending' AND OLD.token IS NOT NULL THEN
            NEW.token := NULL;
        ELSIF NEW.status NOT IN ('claimed', 'running', 'pending') THEN
            NEW.waits_for := NULL;
        END IF;
        PERFORM celeriac.enter(NEW);
        PERFORM celeriac.fall_out_of(NEW.queue, NEW.id, NEW.task_id, NEW.role, NEW.account, NEW.headers, NEW.status,
            NEW.error_message, NEW.workflow, NEW.barrier)
        WHERE OLD.completed_at IS NULL AND NEW.status IN ('failed', 'cancelled') AND NEW.headers ? 'canvas';
    END IF;
    INSERT INTO celeriac.looks (lock_key) SELECT unnest(keys);
    INSERT INTO celeriac.joins (barrier) SELECT OLD.barrier WHERE OLD.barrier IS NOT NULL;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE OR REPLACE TRIGGER worker_tasks_written INSTEAD OF INSERT OR UPDATE OR DELETE ON celeriac.worker_tasks
FOR EACH ROW EXECUTE FUNCTION celeriac.worker_tasks_written();
