-- Whether links of long chains may be stored in `chain_rests`, where a release that does not know it would lose them: not
-- while a live worker is of such a release. From the first time on none starts on this schema any more. It waits for
-- nobody: while somebody else has the row, links stay in their tasks' rows. With its owner's rights, as workers' logins
-- only read `version`.
CREATE OR REPLACE FUNCTION celeriac.begin_rests() RETURNS boolean LANGUAGE plpgsql
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM celeriac.workers
            WHERE status <> 'stopped' AND reported_by IS NULL AND celeriac.is_heard(last_heartbeat_at)
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
