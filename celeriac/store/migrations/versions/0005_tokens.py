"""API tokens.

Revision ID: celeriac_0005
"""

from __future__ import annotations

from alembic import op

revision = "celeriac_0005"
down_revision = "celeriac_0004"
branch_labels = None
depends_on = None

TOKENS = """
CREATE TABLE api_tokens (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    hash BYTEA NOT NULL,
    scopes TEXT[] NOT NULL,
    created_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id),
    CONSTRAINT api_tokens_hash_is_sha256 CHECK (length(hash) = 32),
    CONSTRAINT api_tokens_scopes_known
        CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'enqueue', 'operate', 'admin'])
);
CREATE UNIQUE INDEX api_tokens_one_of_a_name ON api_tokens (name);
"""


def upgrade() -> None:
    op.execute(TOKENS)


def downgrade() -> None:
    op.execute("DROP TABLE api_tokens")
