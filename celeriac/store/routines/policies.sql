-- An account that is paused no longer, or may have something again, has its parked tasks back: the workers' looks bring
-- them, a batch at a time.
CREATE OR REPLACE FUNCTION celeriac.policy_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO celeriac.unparking (account)
    SELECT OLD.account WHERE EXISTS (SELECT FROM celeriac.parked WHERE account = OLD.account)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

-- What is claimed of an account, or of a role, and has not begun waits again: it was paused, or may have nothing. What
-- somebody is starting just now runs on. The windows bound how much that is.
CREATE OR REPLACE FUNCTION celeriac.hand_back(of_role text, of_account text, reason text) RETURNS bigint LANGUAGE sql AS $$
WITH held AS MATERIALIZED (
    SELECT k.token, i.id FROM celeriac.tickets k, unnest(k.ids, k.accounts) AS i (id, account)
    WHERE k.worker_id IS NULL AND (of_role IS NULL OR of_role IN (k.role, celeriac.role_of(k.role))) AND (of_account IS NULL OR i.account = of_account)
)
SELECT count(*) FROM celeriac.release(
    ARRAY(SELECT DISTINCT token FROM held), ARRAY(SELECT id FROM held), false, 'handed_back', reason, current_user, false)
$$;

CREATE OR REPLACE FUNCTION celeriac.account_shut() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM celeriac.hand_back(NULL, NEW.account, 'its account was paused, or may have nothing');
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER account_shut AFTER UPDATE ON celeriac.account_policies
FOR EACH ROW WHEN ((NEW.paused OR NEW.cap = 0) AND NOT (OLD.paused OR coalesce(OLD.cap = 0, false)))
EXECUTE FUNCTION celeriac.account_shut();

CREATE OR REPLACE TRIGGER account_shut_at_once AFTER INSERT ON celeriac.account_policies
FOR EACH ROW WHEN (NEW.paused OR NEW.cap = 0) EXECUTE FUNCTION celeriac.account_shut();

CREATE OR REPLACE FUNCTION celeriac.role_paused() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM celeriac.hand_back(NEW.role, NULL, 'its role was paused');
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER role_paused AFTER UPDATE OF paused ON celeriac.roles
FOR EACH ROW WHEN (NEW.paused AND NOT OLD.paused) EXECUTE FUNCTION celeriac.role_paused();

CREATE OR REPLACE TRIGGER account_resumed AFTER UPDATE OR DELETE ON celeriac.account_policies
FOR EACH ROW WHEN (OLD.paused OR OLD.cap = 0) EXECUTE FUNCTION celeriac.policy_changed();
