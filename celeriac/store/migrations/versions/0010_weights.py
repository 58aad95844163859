"""An account's weight is a number a pass can divide by: NaN and infinity passed the check so far.

Revision ID: celeriac_0010
"""

from __future__ import annotations

from alembic import op

revision = "celeriac_0010"
down_revision = "celeriac_0009"
branch_labels = None
depends_on = None

# What no pass could go by counts as what is usual, or as the nearest bound.
MENDED = """
UPDATE account_policies
SET weight = CASE WHEN weight = 'NaN' THEN 1 ELSE least(greatest(weight, 0.000001), 1000000) END
WHERE weight NOT BETWEEN 0.000001 AND 1000000;
ALTER TABLE account_policies
    DROP CONSTRAINT account_policies_weight_positive,
    ADD CONSTRAINT account_policies_weight_in_range CHECK (weight BETWEEN 0.000001 AND 1000000)
"""

AS_BEFORE = """
ALTER TABLE account_policies
    DROP CONSTRAINT account_policies_weight_in_range,
    ADD CONSTRAINT account_policies_weight_positive CHECK (weight > 0)
"""


def upgrade() -> None:
    op.execute(MENDED)


def downgrade() -> None:
    op.execute(AS_BEFORE)
