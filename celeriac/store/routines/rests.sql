-- Whether this login may store links of long chains in `chain_rests`, where a release that does not know it would lose
-- them: not while a worker of such a release may work, which one that is silent may do again for an hour (`FORGOTTEN`).
-- From the first time on none starts on this schema any more. It waits for nobody: while somebody else has the row, links
-- stay in their tasks' rows; so they do where a login has no rights to the table yet. With its owner's rights, as
-- workers' logins only read `version`.
CREATE OR REPLACE FUNCTION celeriac.begin_rests() RETURNS boolean LANGUAGE plpgsql
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
BEGIN
    IF NOT (has_table_privilege(session_user, 'celeriac.chain_rests', 'INSERT')
            AND has_table_privilege(session_user, 'celeriac.chain_rests', 'SELECT')) THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM celeriac.workers
            WHERE status <> 'stopped' AND reported_by IS NULL
                AND last_heartbeat_at > statement_timestamp() - interval '1 hour'
                AND coalesce(resources ->> 'schema', '') < 'celeriac_0008') THEN
        RETURN false;
    END IF;
    IF NOT EXISTS (SELECT FROM celeriac.version WHERE coalesce(runs_from, '') < 'celeriac_0008') THEN
        RETURN true;
    END IF;
    UPDATE celeriac.version SET runs_from = 'celeriac_0008'
    WHERE version_num = (SELECT version_num FROM celeriac.version FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END $$;
REVOKE ALL ON FUNCTION celeriac.begin_rests FROM PUBLIC;
