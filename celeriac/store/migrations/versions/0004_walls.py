"""Limits of what tokens and logins may enqueue, beside their roles; tokens that only enqueue; sessions of the
dashboard; the login in the audit trail.

Revision ID: celeriac_0004
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "celeriac_0004"
down_revision = "celeriac_0003"
branch_labels = None
depends_on = None

TRIGGERS = (
    ("api_tokens", "api_tokens_in_the_trail"), ("api_tokens", "api_tokens_stay_revoked"),
    ("enqueuers", "enqueuers_in_the_trail"), ("roles", "roles_keep_secrets"),
)  # fmt: skip

HERE = Path(__file__).parent


def upgrade() -> None:
    op.get_bind().exec_driver_sql((HERE / "0004_walls.sql").read_text().replace("%", "%%"))


def downgrade() -> None:
    """Revoke tokens, and take the roles of logins, with limits that the release before does not know: it would let them
    enqueue everything.
    """
    for table, trigger in TRIGGERS:
        op.execute(f"DROP TRIGGER {trigger} ON celeriac.{table}")
    op.execute("ALTER TABLE celeriac.audit DROP login")
    op.execute("DROP TABLE celeriac.dashboard_sessions")
    op.execute("""UPDATE celeriac.api_tokens
        SET scopes = array_replace(scopes, 'submit', 'view'), revoked_at = coalesce(revoked_at, now())
        WHERE 'submit' = ANY (scopes) OR accounts IS NOT NULL OR keys IS NOT NULL OR priorities IS NOT NULL""")
    op.execute("""UPDATE celeriac.enqueuers SET roles = ARRAY['']
        WHERE accounts IS NOT NULL OR keys IS NOT NULL OR priorities IS NOT NULL""")
    for table in ("api_tokens", "enqueuers"):
        op.execute(f"ALTER TABLE celeriac.{table} DROP accounts, DROP keys, DROP priorities")
    op.execute("ALTER TABLE celeriac.enqueuers ALTER roles SET NOT NULL")
    op.execute("ALTER TABLE celeriac.api_tokens DROP CONSTRAINT api_tokens_scopes_known")
    op.execute("""ALTER TABLE celeriac.api_tokens ADD CONSTRAINT api_tokens_scopes_known
        CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['view', 'read', 'enqueue', 'operate', 'admin'])""")
