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
