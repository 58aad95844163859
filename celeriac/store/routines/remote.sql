-- What a worker did as remote control said, which is whoever may write to Redis. A worker's login writes nothing else into
-- the audit trail, and cannot say that it was somebody else.
CREATE OR REPLACE FUNCTION celeriac.note_remote_control(command text, kind text, changes jsonb, heard_by text)
RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
INSERT INTO celeriac.audit (by, action, kind, target, after, via)
SELECT 'remote control at ' || heard_by, command, kind, c.target, c.after, 'remote control'
FROM jsonb_to_recordset(changes) AS c (target text, after jsonb)
$$;
ALTER FUNCTION celeriac.note_remote_control SET search_path = celeriac, pg_temp;
REVOKE ALL ON FUNCTION celeriac.note_remote_control FROM PUBLIC;
