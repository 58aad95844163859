-- Whether a task of this role that has failed or was cancelled leaves a row: where `keep` is 0 only if a body may read it.
CREATE OR REPLACE FUNCTION celeriac.leaves_row(of_role text, barrier uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT barrier IS NOT NULL
    OR NOT EXISTS (SELECT FROM celeriac.roles WHERE role = of_role AND definition -> 'keep' = '0')
$$;

-- Whether the workers of a role of this definition have counted what ended so (`outcomes`). A member of a group leaves its
-- row to the body all the same, which then is not counted as well. By the definition of now: what ended before `keep` was
-- changed is not told apart, and an hour's figures may miss it.
CREATE OR REPLACE FUNCTION celeriac.is_counted(definition jsonb, status text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
SELECT coalesce(CASE status WHEN 'completed' THEN definition -> 'keep' IN ('null', '0')
    WHEN 'failed' THEN definition -> 'keep' = '0' END, false)
$$;

-- Makes the partition of `history` for a day (UTC), unless it is there or somebody makes one just now; whether it did.
-- Rows of that day that the default partition took meanwhile move into it. Partitions are their owner's, so it acts with
-- that one's rights.
CREATE OR REPLACE FUNCTION celeriac.add_history_day(day date) RETURNS boolean LANGUAGE plpgsql
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
DECLARE
    name text := 'history_' || to_char(day, 'YYYYMMDD');
    first timestamptz := day::timestamp AT TIME ZONE 'UTC';
    last timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('celeriac history', 0))
        OR to_regclass('celeriac.' || name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE celeriac.%I (LIKE celeriac.history INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
    EXECUTE format('WITH moved AS (DELETE FROM celeriac.history_rest WHERE completed_at >= %L AND completed_at < %L'
        ' RETURNING *) INSERT INTO celeriac.%I SELECT * FROM moved', first, last, name);
    EXECUTE format('ALTER TABLE celeriac.history ATTACH PARTITION celeriac.%I FOR VALUES FROM (%L) TO (%L)',
        name, first, last);
    RETURN true;
END $$;

-- Drops the partition of a day, with all that finished on it. Two who look what a day has, and then both drop it, would
-- wait for one another: the second is told at once that somebody has it, and leaves.
CREATE OR REPLACE FUNCTION celeriac.drop_history_day(day date) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = celeriac, pg_temp AS $$
DECLARE
    name text := 'history_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('celeriac history', 0))
        OR to_regclass('celeriac.' || name) IS NULL THEN
        RAISE lock_not_available USING MESSAGE = format('somebody else has %s, or dropped it', name);
    END IF;
    EXECUTE format('DROP TABLE celeriac.%I', name);
END $$;

REVOKE ALL ON FUNCTION celeriac.add_history_day, celeriac.drop_history_day FROM PUBLIC;
