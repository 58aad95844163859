-- An account that is paused no longer, or may have something again, has its parked tasks back: the workers' looks bring
-- them, a batch at a time.
CREATE OR REPLACE FUNCTION celeriac.policy_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO celeriac.unparking (account)
    SELECT OLD.account WHERE EXISTS (SELECT FROM celeriac.parked WHERE account = OLD.account)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER account_resumed AFTER UPDATE OR DELETE ON celeriac.account_policies
FOR EACH ROW WHEN (OLD.paused OR OLD.cap = 0) EXECUTE FUNCTION celeriac.policy_changed();
