-- Whether it is a name that people may give: no controls, format characters, private use, and separators but the plain
-- space. `celeriac.roles.bounds.NAME` in Python takes no more than this; what is no character yet, it refuses as well.
CREATE OR REPLACE FUNCTION celeriac.is_name(given text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT char_length(given) BETWEEN 1 AND 200 AND given = btrim(given) AND given NOT IN ('.', '..')
        AND given !~ ('[\u0001-\u001f\u007f-\u00a0\u00ad'
        '\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000'
        '\ue000-\uf8ff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3'
        '\U0001d173-\U0001d17a\U000e0001-\U000e007f\U000f0000-\U0010ffff]')
$$;

-- A row's name is one that every surface takes. One from before this rule stays until it is changed: a beat of that
-- time inserts its schedules anew at each start, ON CONFLICT.
CREATE OR REPLACE FUNCTION celeriac.schedule_named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT celeriac.is_name(NEW.name) AND (TG_OP = 'UPDATE' AND NEW.name <> OLD.name
        OR TG_OP = 'INSERT' AND NOT EXISTS (SELECT FROM celeriac.scheduled_jobs s WHERE s.name = NEW.name)) THEN
        RAISE check_violation USING
            MESSAGE = 'schedule ' || left(quote_literal(NEW.name), 100)
                || ': give a name of 1 to 200 printable characters without a space at an end, not . or ..';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER scheduled_jobs_named BEFORE INSERT OR UPDATE OF name ON celeriac.scheduled_jobs
FOR EACH ROW EXECUTE FUNCTION celeriac.schedule_named();

-- What a change to `scheduled_jobs` brings with it, whoever makes it: a schedule that is switched on again has missed
-- nothing; one that was changed is no longer what was quarantined.
CREATE OR REPLACE FUNCTION celeriac.schedule_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.enabled AND NOT OLD.enabled THEN
        NEW.planned_as := NULL;
    END IF;
    IF (NEW.cron_expression, NEW.timezone, NEW.kind, NEW.target, NEW.kwargs, NEW.options, NEW.priority) IS DISTINCT FROM
        (OLD.cron_expression, OLD.timezone, OLD.kind, OLD.target, OLD.kwargs, OLD.options, OLD.priority) THEN
        NEW.quarantined := NULL;
        NEW.updated_at := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER scheduled_jobs_changed BEFORE UPDATE ON celeriac.scheduled_jobs
FOR EACH ROW EXECUTE FUNCTION celeriac.schedule_changed();
