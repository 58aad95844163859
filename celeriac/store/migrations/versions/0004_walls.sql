-- What a token or a login may enqueue, beside its roles; and a scope that sees nothing.
ALTER TABLE celeriac.api_tokens
    ADD accounts text[],
    ADD keys text[],
    ADD priorities integer[],
    DROP CONSTRAINT api_tokens_scopes_known,
    ADD CONSTRAINT api_tokens_scopes_known CHECK (cardinality(scopes) > 0
        AND scopes <@ ARRAY['view', 'read', 'submit', 'enqueue', 'operate', 'admin']),
    ADD CONSTRAINT api_tokens_accounts_some CHECK (cardinality(accounts) > 0),
    ADD CONSTRAINT api_tokens_keys_some CHECK (cardinality(keys) > 0),
    ADD CONSTRAINT api_tokens_priorities_in_order CHECK (cardinality(priorities) = 2 AND priorities[1] <= priorities[2]);

ALTER TABLE celeriac.enqueuers
    ALTER roles DROP NOT NULL,
    ADD accounts text[],
    ADD keys text[],
    ADD priorities integer[],
    ADD CONSTRAINT enqueuers_accounts_some CHECK (cardinality(accounts) > 0),
    ADD CONSTRAINT enqueuers_keys_some CHECK (cardinality(keys) > 0),
    ADD CONSTRAINT enqueuers_priorities_in_order CHECK (cardinality(priorities) = 2 AND priorities[1] <= priorities[2]);

-- Who is signed in at the dashboard: the hash of what the browser has, and the token it was begun with.
CREATE TABLE celeriac.dashboard_sessions (
    hash bytea NOT NULL,
    token text NOT NULL REFERENCES celeriac.api_tokens ON DELETE CASCADE,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (hash),
    CONSTRAINT dashboard_sessions_hash_is_sha256 CHECK (length(hash) = 32)
);

-- Which login wrote it, whatever it says of itself.
ALTER TABLE celeriac.audit ADD login text;
ALTER TABLE celeriac.audit ALTER login SET DEFAULT session_user;

CREATE FUNCTION celeriac.note_unsaid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE FUNCTION celeriac.keep_revoked() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE FUNCTION celeriac.keep_sensitive() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;

-- At the commit, once whoever says what he did has said it.
CREATE CONSTRAINT TRIGGER api_tokens_in_the_trail
AFTER INSERT OR DELETE OR UPDATE OF name, hash, scopes, roles, accounts, keys, priorities, expires_at, revoked_at
ON celeriac.api_tokens DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION celeriac.note_unsaid('token', 'name');
CREATE CONSTRAINT TRIGGER enqueuers_in_the_trail AFTER INSERT OR UPDATE OR DELETE
ON celeriac.enqueuers DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION celeriac.note_unsaid('enqueuer', 'login');
CREATE TRIGGER api_tokens_stay_revoked BEFORE UPDATE OF revoked_at ON celeriac.api_tokens
FOR EACH ROW EXECUTE FUNCTION celeriac.keep_revoked();
CREATE TRIGGER roles_keep_secrets BEFORE UPDATE ON celeriac.roles
FOR EACH ROW EXECUTE FUNCTION celeriac.keep_sensitive();
