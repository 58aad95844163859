"""The links of long chains that no task's row carries yet, so that a link costs the same however many follow it.

Revision ID: celeriac_0008
"""

from __future__ import annotations

from alembic import op

revision = "celeriac_0008"
down_revision = "celeriac_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """`runs_from` stays: the first chain that is stored so raises it (`celeriac.begin_rests`)."""
    op.execute("""
        CREATE TABLE celeriac.chain_rests (
            chain uuid NOT NULL,
            place integer NOT NULL,
            workflow text NOT NULL,
            links jsonb NOT NULL,
            created_at timestamptz DEFAULT now() NOT NULL,
            PRIMARY KEY (chain, place)
        )""")


def downgrade() -> None:
    """Refused while an unfinished task has links here, which the release before would lose: its chain would end there.

    What failed, and is retried after that, ends with the links that its row carries.
    """
    op.execute("""
        DO $$ BEGIN
            IF EXISTS (
                SELECT FROM celeriac.chain_rests r JOIN celeriac.tasks t ON t.workflow = r.workflow
                WHERE r.place = 0 AND t.headers @? '$.canvas.chain[*] ? (@.task == "celeriac.rest_of_chain")'
            ) THEN
                RAISE 'long chains are under way, whose links would be lost: let them end, or cancel them, first';
            END IF;
        END $$
    """)
    op.execute("UPDATE celeriac.version SET runs_from = 'celeriac_0007' WHERE runs_from = 'celeriac_0008'")
    op.execute("DROP TABLE celeriac.chain_rests CASCADE")
    op.execute("DROP FUNCTION IF EXISTS celeriac.begin_rests")
