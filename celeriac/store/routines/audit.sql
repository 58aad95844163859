-- What a worker did as remote control said, which is whoever may write to Redis. A worker's login writes nothing else
-- into the audit trail, and cannot say that it was somebody else, nor what it likes: commands are Celery's, or of the
-- application by a name of its own; what is done to tasks is what can be; the rest is short.
CREATE OR REPLACE FUNCTION celeriac.note_remote_control(command text, kind text, changes jsonb, heard_by text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    known CONSTANT text[] := ARRAY['add_consumer', 'autoscale', 'cancel_consumer', 'disable_events', 'enable_events',
        'objgraph', 'pool_grow', 'pool_restart', 'pool_shrink', 'shutdown'];
    heard CONSTANT text := coalesce(
        (SELECT w.worker_id FROM celeriac.workers w WHERE w.worker_id = heard_by), 'a worker that is not registered');
    is_one boolean;
BEGIN
    IF jsonb_typeof(changes) = 'array' AND pg_column_size(changes) <= 2000000
        AND jsonb_array_length(changes) <= 1000
    THEN
        SELECT coalesce(bool_and(coalesce(CASE kind
            WHEN 'task' THEN command = 'revoke' AND c.after IN ('{"status": "cancelled"}', '{"status": "asked"}')
                AND octet_length(c.target) <= 1000
            WHEN 'worker' THEN command ~ '^[A-Za-z_][A-Za-z0-9_.-]{0,99}$' AND octet_length(c.target) <= 300
                AND c.target !~ '[[:cntrl:]]' AND jsonb_typeof(c.after) = 'object'
                AND octet_length(c.after::text) <= 16000
            END, false)), true) INTO is_one
        FROM jsonb_to_recordset(changes) AS c (target text, after jsonb);
    END IF;
    IF is_one IS NOT true THEN
        RAISE 'this is no change by remote control' USING ERRCODE = '22023',
            HINT = 'kind is task (command revoke, after a status) or worker; target and after are short.';
    END IF;
    INSERT INTO celeriac.audit (by, action, kind, target, after, via)
    SELECT 'remote control at ' || heard, CASE WHEN kind = 'task' OR command = ANY (known) THEN command
            ELSE 'a command of the application' END, kind, c.target,
        CASE WHEN kind = 'task' OR command = ANY (known) THEN c.after
            ELSE jsonb_build_object('command', command, 'arguments', c.after) END, 'remote control'
    FROM jsonb_to_recordset(changes) AS c (target text, after jsonb);
END $$;
ALTER FUNCTION celeriac.note_remote_control SET search_path = celeriac, pg_temp;
REVOKE ALL ON FUNCTION celeriac.note_remote_control FROM PUBLIC;

-- Whether the login has all rights on that table anyhow, as its owner or a superuser.
CREATE OR REPLACE FUNCTION celeriac.is_owner(of_table oid) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT pg_has_role(session_user, relowner, 'USAGE') FROM pg_class WHERE oid = of_table
$$;

-- Of tokens and limited logins: whoever may write them but not the trail's past leaves a row there, too, whether he
-- wrote one or not. `kind` and the column that names the target are the trigger's arguments. A row of the same
-- transaction is enough if it says what is: of a new one all that it may, of a change all that is changed, of one that
-- is gone what it was.
CREATE OR REPLACE FUNCTION celeriac.note_unsaid() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = celeriac, pg_temp
AS $$
DECLARE
    hidden CONSTANT text[] := ARRAY['hash', 'last_used_at'];
    -- Who wrote it, and when, is what the trail's own columns are about.
    beside CONSTANT text[] := ARRAY['by', 'updated_at', 'created_by', 'created_at'];
    was CONSTANT jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - hidden END;
    is_now CONSTANT jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - hidden END;
    named CONSTANT text := coalesce(is_now, was) ->> TG_ARGV[1];
    had CONSTANT jsonb := celeriac.as_said(was - beside - CASE WHEN TG_OP = 'DELETE' THEN ARRAY['id', TG_ARGV[1]]
        ELSE '{}' END);
    has CONSTANT jsonb := celeriac.as_said(is_now - beside - CASE WHEN TG_OP = 'INSERT' THEN ARRAY['id', TG_ARGV[1]]
        ELSE '{}' END);
BEGIN
    IF celeriac.is_owner(TG_RELID) OR EXISTS (
        SELECT FROM celeriac.audit a WHERE a.kind = TG_ARGV[0] AND a.target = named AND a.at = now() AND CASE TG_OP
            WHEN 'DELETE' THEN coalesce(a.after, 'null') = 'null' AND NOT EXISTS (
                SELECT FROM jsonb_each(had) AS f WHERE f.value <> coalesce(a.before -> f.key, 'null'))
            ELSE jsonb_typeof(a.after) = 'object' AND NOT EXISTS (
                SELECT FROM jsonb_each(has) AS f
                WHERE (TG_OP = 'INSERT' OR f.value <> had -> f.key)
                    AND f.value <> coalesce(a.after -> f.key,
                        CASE f.key WHEN 'revoked' THEN 'false'::jsonb ELSE 'null' END))
            END)
    THEN
        RETURN NULL;
    END IF;
    INSERT INTO celeriac.audit (by, action, kind, target, before, after, why, via)
    VALUES (session_user, lower(TG_OP), TG_ARGV[0], named, was, is_now, 'written to the table itself', 'SQL');
    RETURN NULL;
END $$;

-- The fields of a token or a limited login as rows of the trail have them: of a revocation whether, not when.
CREATE OR REPLACE FUNCTION celeriac.as_said(fields jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
SELECT (fields - 'revoked_at') || CASE WHEN fields ? 'revoked_at'
    THEN jsonb_build_object('revoked', fields -> 'revoked_at' <> 'null') ELSE '{}' END
$$;

-- What is revoked stays so, and a role's secrets grow only, but for the owner: `celeriac migrate` takes names away.
CREATE OR REPLACE FUNCTION celeriac.keep_revoked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at
        AND NOT celeriac.is_owner(TG_RELID)
    THEN
        RAISE 'the token % is revoked', quote_literal(OLD.name) USING ERRCODE = '42501', HINT = 'Make another.';
    END IF;
    RETURN NEW;
END $$;

-- So do places of arguments: what stands where a secret stood is secret, as calls by position are shown by the
-- parameters there are now. A place without a parameter has its number as name, from 1 on. Where `*args` was secret, so is
-- every parameter from its place on; where `**kwargs` was, every new name; and what they took needs a parameter that takes
-- it still.
CREATE OR REPLACE FUNCTION celeriac.keep_sensitive() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before CONSTANT jsonb := coalesce(nullif(OLD.definition -> 'sensitive', 'null'), '[]');
    now_said CONSTANT jsonb := coalesce(nullif(NEW.definition -> 'sensitive', 'null'), '[]');
    in_places jsonb;
    open_from integer;
    by_name boolean;
BEGIN
    IF celeriac.is_owner(TG_RELID) THEN
        RETURN NEW;
    END IF;
    IF jsonb_typeof(NEW.definition) <> 'object' OR jsonb_typeof(NEW.parameters) <> 'array'
        OR jsonb_typeof(now_said) <> 'array'
        OR jsonb_path_exists(now_said, 'strict $[*] ? (@.type() <> "string")')
        OR EXISTS (SELECT FROM jsonb_array_elements(NEW.parameters) AS p
            WHERE coalesce(jsonb_typeof(p -> 'name'), '') <> 'string')
    THEN
        RAISE 'the role % has another shape than roles have', quote_literal(OLD.role)
            USING ERRCODE = '22023', HINT = 'Declare it in code: workers register it.';
    END IF;
    SELECT min(o.n) FILTER (WHERE o.p ->> 'kind' = 'VAR_POSITIONAL'),
        coalesce(bool_or(o.p ->> 'kind' = 'VAR_KEYWORD'), false)
    INTO open_from, by_name FROM jsonb_array_elements(OLD.parameters) WITH ORDINALITY AS o (p, n)
    WHERE before ? (o.p ->> 'name');
    IF (open_from IS NOT NULL AND NOT NEW.parameters @> '[{"kind": "VAR_POSITIONAL"}]')
        OR (by_name AND NOT NEW.parameters @> '[{"kind": "VAR_KEYWORD"}]')
    THEN
        RAISE 'the role % takes no longer what its `*args` or `**kwargs` took, which is secret', quote_literal(OLD.role)
            USING ERRCODE = '22023', HINT = 'Start a worker once with the login that owns the schema.';
    END IF;
    SELECT coalesce(jsonb_agg(coalesce(NEW.parameters -> (n - 1) ->> 'name', CAST(n AS text))), '[]') INTO in_places
    FROM generate_series(1, greatest(jsonb_array_length(OLD.parameters), jsonb_array_length(NEW.parameters))) AS n
    WHERE before ? coalesce(OLD.parameters -> (n - 1) ->> 'name', CAST(n AS text))
        OR (n >= open_from AND NEW.parameters -> (n - 1) ->> 'kind' LIKE 'POSITIONAL_%')
        OR (open_from IS NOT NULL AND NEW.parameters -> (n - 1) ->> 'kind' = 'VAR_POSITIONAL')
        OR (by_name AND NOT OLD.parameters @> jsonb_build_array(
            jsonb_build_object('name', NEW.parameters -> (n - 1) ->> 'name')));
    IF now_said @> before AND now_said @> in_places AND NEW.role = OLD.role THEN
        RETURN NEW;
    END IF;
    NEW.role := OLD.role;
    NEW.definition := NEW.definition || jsonb_build_object('sensitive', (
        SELECT jsonb_agg(name ORDER BY name) FROM (SELECT jsonb_array_elements(before)
            UNION SELECT jsonb_array_elements(now_said) UNION SELECT jsonb_array_elements(in_places)) AS u (name)));
    RETURN NEW;
END $$;
