-- `celeriac.enqueue`: enqueuing for whoever speaks SQL, in their own transaction, by the rules of `.delay()`.
--
-- What the declaring code would do to a call, this function and those of `arguments.sql` do from the role's row in
-- `roles`: fit the arguments to the handler's parameters, derive account, lock and unique key as Python's `str()` writes
-- them, take the role's defaults, refuse what no worker could read. Where SQL cannot tell what Python would write, it
-- refuses and asks for the key.
--
-- SQLSTATE of a refusal: 42704 unknown role, 22023 bad argument or option, 54000 too large, 0A000 a key only the
-- declaring code can derive, or a new id under a snapshot that may be too old to tell, 23505 another task has this id,
-- 40001 competitors took and freed the keys again and again.

-- A named type rather than RETURNS TABLE, in which no column may be called as a parameter is.
DO $$ BEGIN
    CREATE TYPE celeriac.receipt AS (id bigint, task_id text, is_new boolean);
EXCEPTION WHEN duplicate_object THEN
    NULL;
END $$;

-- Whether it did. A request that came too late for the one that holds its key is a new one.
CREATE OR REPLACE FUNCTION celeriac.make_way(task_role text, key text, by_whom text) RETURNS boolean LANGUAGE plpgsql
AS $$
DECLARE
    expired bigint;
BEGIN
    SELECT t.id INTO expired FROM celeriac.tasks t
    WHERE t.role = task_role AND t.unique_key = key AND t.expires_at <= clock_timestamp()
        AND NOT EXISTS (
            SELECT FROM celeriac.tickets k WHERE k.role = celeriac.lane(t.role, t.queue) AND k.worker_id IS NOT NULL AND t.id = ANY (k.ids));
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO celeriac.looks (lock_key)
    SELECT gives_up FROM celeriac.cancel(ARRAY[expired], 'expired', 'expired before it started', by_whom)
    WHERE gives_up IS NOT NULL;
    RETURN true;
END $$;

-- A task that is ready by its mere insert, has no unique key and an id that was made for it; its row's id. For callers'
-- transactions: each session plans it once, and nothing of it stays behind in the session, as what is prepared would.
CREATE OR REPLACE FUNCTION celeriac.insert_ready(
    task_id text, role text, account text, priority integer, args jsonb, kwargs jsonb, headers jsonb, max_retries integer,
    max_rounds integer, timeout double precision, parent_id bigint, enqueued_by text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    fresh record;
BEGIN
    INSERT INTO celeriac.tasks (
        task_id, role, account, priority, args, kwargs, headers, max_retries, max_rounds, timeout, parent_id, enqueued_by)
    VALUES (
        task_id, role, account, priority, args, kwargs, headers, max_retries, max_rounds, timeout, parent_id, enqueued_by)
    RETURNING id, scheduled_for INTO fresh;
    INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
    VALUES ((SELECT seg FROM celeriac.ring), role, account, priority, fresh.scheduled_for, fresh.id);
    RETURN fresh.id;
END $$;

-- Whether it has the form of the ids of schedules' tasks, which nobody else may take.
CREATE OR REPLACE FUNCTION celeriac.is_instants(task_id text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
SELECT task_id ~ '@[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?Z$'
$$;

-- Whether one of these means it: by name, or by its beginning where the entry ends in `*`.
CREATE OR REPLACE FUNCTION celeriac.is_among(value text, entries text[]) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
SELECT EXISTS (
    SELECT FROM unnest(entries) AS entry
    WHERE value = entry OR right(entry, 1) = '*' AND starts_with(value, left(entry, -1)))
$$;

CREATE OR REPLACE FUNCTION celeriac.enqueue(
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
    enqueued_by text DEFAULT NULL,
    queue text DEFAULT NULL
) RETURNS celeriac.receipt LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    declared celeriac.roles;
    rule jsonb;
    call jsonb;
    task celeriac.tasks;
    lane text;
    is_named CONSTANT boolean := enqueue.task_id IS NOT NULL;
    receipt celeriac.receipt;
    differs boolean;
    limited celeriac.enqueuers;
    century CONSTANT double precision := 100 * 365 * 86400.0;
BEGIN
    SELECT e.* INTO limited FROM celeriac.enqueuers e WHERE e.login = session_user;
    IF enqueue.role <> ALL (limited.roles) THEN
        PERFORM celeriac.refuse('42501', 'the login ' || quote_literal(session_user) || ' may not enqueue the role '
            || quote_literal(enqueue.role), 'Ask for it: celeriac logins limit ' || session_user || ' --role ...');
    END IF;
    SELECT r.* INTO declared FROM celeriac.roles r WHERE r.role = enqueue.role;
    IF NOT FOUND OR declared.definition ? 'lane_of' THEN
        PERFORM celeriac.refuse('42704', 'no role ' || coalesce(quote_literal(enqueue.role), 'NULL'),
            'Start a worker of the code that declares it, or check the spelling.');
    END IF;
    rule := declared.definition;
    task.role := declared.role;
    task.queue := celeriac.other_queue(task.role, rule, enqueue.queue);
    lane := celeriac.lane(task.role, task.queue);
    call := celeriac.bind(task.role, declared.parameters, enqueue.args);
    PERFORM celeriac.readable(task.role, call - 'bound', coalesce((rule ->> 'max_argument_bytes')::bigint, 262144));

    task.account := enqueue.account;
    IF task.account IS NULL THEN
        task.account := coalesce(celeriac.key(task.role, 'fair_by', rule ->> 'fair_by', call -> 'bound'), '');
    END IF;
    task.unique_key := enqueue.unique_key;
    IF task.unique_key IS NULL THEN
        task.unique_key := celeriac.unique_of(task.role, rule, call -> 'bound', enqueue.scheduled_for);
    END IF;
    task.lock_key := enqueue.lock_key;
    IF task.lock_key IS NULL THEN
        task.lock_key := celeriac.lock_of(task.role, rule, call -> 'bound');
    END IF;

    task.task_id := coalesce(enqueue.task_id, celeriac.fresh_id());
    task.enqueued_by := coalesce(enqueue.enqueued_by || ' ', '') || 'sql:' || session_user;
    task.priority := coalesce(enqueue.priority, (rule ->> 'priority')::integer);
    task.max_retries := coalesce(enqueue.max_retries, (rule ->> 'max_retries')::integer);
    task.scheduled_for := coalesce(enqueue.scheduled_for, statement_timestamp());
    PERFORM celeriac.fits(task.role, octet_length(k.given) <= 1000, k.option, k.given,
        'Give a text of at most 1000 bytes without NUL.')
    FROM (VALUES ('account', task.account), ('lock_key', task.lock_key), ('unique_key', task.unique_key),
        ('task_id', task.task_id), ('enqueued_by', task.enqueued_by)) AS k (option, given);
    PERFORM celeriac.fits(task.role, task.task_id <> '', 'task_id', '', 'Give a text that is not empty, or none.');
    PERFORM celeriac.fits(task.role, NOT celeriac.is_instants(task.task_id), 'task_id', task.task_id,
        'Give another: what ends in @ and an instant are ids of schedules.');
    PERFORM celeriac.fits(task.role, task.priority BETWEEN p.lowest AND p.highest, 'priority', task.priority::text,
        'Give a whole number from ' || p.lowest || ' to ' || p.highest || '.')
    FROM (VALUES (coalesce((rule #>> '{priority_range,0}')::integer, -1000000),
        coalesce((rule #>> '{priority_range,1}')::integer, 1000000))) AS p (lowest, highest);
    PERFORM celeriac.fits(task.role, task.max_retries BETWEEN 0 AND 1000000, 'max_retries', task.max_retries::text,
        'Give 0 to 1,000,000.');
    PERFORM celeriac.fits(task.role, timeout > 0 AND timeout <= century, 'timeout', timeout::text,
        'Give seconds above 0, at most 100 years.');
    PERFORM celeriac.fits(task.role, t.given BETWEEN '0001-01-02' AND '9999-12-30', t.option, t.given::text,
        'Give a time in the years 1 to 9999.')
    FROM (VALUES ('scheduled_for', task.scheduled_for), ('expires_at', enqueue.expires_at))
        AS t (option, given);
    IF limited.login IS NOT NULL THEN
        PERFORM celeriac.refuse('42501', 'the login ' || quote_literal(session_user) || ' may not enqueue with '
            || k.option || '=' || left(quote_literal(k.given), 100), 'It may with ' || array_to_string(k.entries, ', ')
            || '; see celeriac logins list.')
        FROM (VALUES ('account', task.account, limited.accounts), ('lock_key', task.lock_key, limited.keys),
            ('unique_key', task.unique_key, limited.keys), ('task_id', enqueue.task_id, limited.keys)
        ) AS k (option, given, entries)
        WHERE NOT celeriac.is_among(k.given, k.entries) AND k.entries IS NOT NULL AND k.given IS NOT NULL;
        IF task.priority NOT BETWEEN limited.priorities[1] AND limited.priorities[2] THEN
            PERFORM celeriac.refuse('42501', 'the login ' || quote_literal(session_user)
                || ' may not enqueue with priority=' || task.priority, 'It may with ' || limited.priorities[1] || ' to '
                || limited.priorities[2] || '; see celeriac logins list.');
        END IF;
    END IF;

    receipt.task_id := task.task_id;
    FOR attempt IN 1..100 LOOP
        INSERT INTO celeriac.tasks (
            task_id, role, account, lock_key, unique_key, priority, args, kwargs, scheduled_for, expires_at,
            max_retries, max_rounds, timeout, enqueued_by, queue
        )
        SELECT task.task_id, task.role, task.account, task.lock_key, task.unique_key, task.priority, call -> 'args',
            call -> 'kwargs', task.scheduled_for, enqueue.expires_at, task.max_retries,
            (rule ->> 'max_rounds')::integer, enqueue.timeout, task.enqueued_by, task.queue
        WHERE NOT is_named OR NOT EXISTS (SELECT FROM celeriac.history_named(ARRAY[task.task_id]))
        ON CONFLICT DO NOTHING RETURNING id INTO receipt.id;
        receipt.is_new := FOUND;
        IF FOUND AND is_named AND EXISTS (SELECT FROM celeriac.history_named(ARRAY[task.task_id])) THEN
            -- It finished while this was inserted, which saw neither the task nor its history.
            DELETE FROM celeriac.tasks t WHERE t.id = receipt.id;
            CONTINUE;
        END IF;
        IF receipt.is_new AND is_named AND current_setting('transaction_isolation') <> 'read committed' THEN
            PERFORM celeriac.refuse('0A000', task.role || ': task_id=' || left(quote_literal(task.task_id), 100)
                || ': a transaction that is not READ COMMITTED cannot see whether this task has finished',
                'Begin it with ISOLATION LEVEL READ COMMITTED, or leave out task_id.');
        END IF;
        EXIT WHEN receipt.is_new;
        CONTINUE WHEN celeriac.make_way(task.role, task.unique_key, task.enqueued_by);
        SELECT t.id, t.task_id,
            t.task_id = task.task_id AND NOT t.tried  -- a retry may have other arguments, and a new round keeps them
                AND (t.role <> task.role
                    OR celeriac.are_other_calls(t.role, t.args, t.kwargs, call -> 'args', call -> 'kwargs'))
        INTO receipt.id, receipt.task_id, differs FROM (
            (SELECT id, task_id, role, args, kwargs, retry_count > 0 OR tries > 0 AS tried FROM celeriac.tasks
                WHERE task_id = task.task_id)
            UNION ALL
            (SELECT id, task_id, role, args, kwargs, false FROM celeriac.tasks
                WHERE role = task.role AND unique_key = task.unique_key)
            UNION ALL
            (SELECT id, task_id, role, args, kwargs, retry_count > 0 OR tries > CAST(status = 'failed' AS integer)
                FROM celeriac.history_named(ARRAY[task.task_id]) LIMIT 1)
            LIMIT 1
        ) AS t;
        IF differs THEN
            PERFORM celeriac.refuse('23505', task.role || ': task_id=' || left(quote_literal(task.task_id), 100)
                || ': task ' || receipt.id || ' has this id, and another role or other arguments', 'Give another.');
        END IF;
        EXIT WHEN FOUND;
        receipt.task_id := task.task_id;
    END LOOP;
    IF receipt.id IS NULL THEN
        PERFORM celeriac.refuse('40001', task.role || ': its keys were taken and free again 100 times', 'Try again.');
    END IF;
    IF NOT receipt.is_new THEN
        RETURN receipt;
    END IF;
    IF task.scheduled_for > statement_timestamp() THEN
        INSERT INTO celeriac.later (role, account, due_at, id)
        VALUES (lane, task.account, task.scheduled_for, receipt.id);
    ELSIF task.lock_key IS NOT NULL THEN
        INSERT INTO celeriac.behind (lock_key, priority, due_at, id, role, account)
        VALUES (task.lock_key, task.priority, task.scheduled_for, receipt.id, lane, task.account);
        INSERT INTO celeriac.looks (lock_key) VALUES (task.lock_key);
    ELSE
        INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
        SELECT seg, lane, task.account, task.priority, task.scheduled_for, receipt.id FROM celeriac.ring;
    END IF;
    RETURN receipt;
END $$;

-- Beside the one of before, which had no queue, a call would fit both. Who may call that one may call this one.
DO $$
DECLARE
    before CONSTANT regprocedure := to_regprocedure('celeriac.enqueue(text, jsonb, integer, timestamptz, text, text, text, '
        'text, double precision, integer, timestamptz, text)');
    allowed regrole;
BEGIN
    IF before IS NULL THEN
        RETURN;
    END IF;
    FOR allowed IN SELECT a.grantee FROM pg_proc p, aclexplode(p.proacl) AS a WHERE p.oid = before AND a.grantee <> 0 LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION celeriac.enqueue(text, jsonb, integer, timestamptz, text, text, text, '
            'text, double precision, integer, timestamptz, text, text) TO %s', allowed);
    END LOOP;
    EXECUTE 'DROP FUNCTION ' || before;
END $$;

-- It acts with its owner's rights, so what its names mean must not be the caller's to say; and any login may call any
-- function unless told otherwise.
ALTER FUNCTION celeriac.enqueue SET search_path = celeriac, pg_temp;
REVOKE ALL ON FUNCTION celeriac.enqueue FROM PUBLIC;
