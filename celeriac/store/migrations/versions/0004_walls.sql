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
