"""A resync that is planned for later takes nobody's place.

Revision ID: app_0007
"""

from __future__ import annotations

from alembic import op

revision = "app_0007"
down_revision = "app_0006"
branch_labels = None
depends_on = None

STAGGER_RESYNCS = """
CREATE OR REPLACE FUNCTION stagger_resyncs(batches integer, starts timestamptz, lasts interval)
RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    IF batches IS NULL OR batches < 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = concat('batches is ', batches, ': give a number from 1 on');
    END IF;
    RETURN (
        SELECT count(*) FILTER (WHERE task.is_new)
        FROM (
            SELECT id, due FROM (
                SELECT id, starts + lasts * mod(row_number() OVER (ORDER BY id) - 1, batches) / batches AS due
                FROM dispensaries WHERE crawl_enabled AND platform_dispensary_id IS NOT NULL
            ) AS dealt
            WHERE NOT EXISTS (
                SELECT FROM celeriac.tasks t
                WHERE t.role = 'product_resync' AND t.lock_key = concat('dispensary_id:', dealt.id)
                    AND (t.scheduled_for BETWEEN starts AND starts + lasts - interval '1 microsecond'
                        OR t.scheduled_for <= statement_timestamp()))
            ORDER BY id::text OFFSET 0
        ) AS store
        CROSS JOIN LATERAL celeriac.enqueue(
            'product_resync', jsonb_build_object('dispensary_id', store.id), scheduled_for => store.due,
            task_id => concat('resync ', store.id, ' of ', to_char(starts AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24MI')),
            enqueued_by => 'stagger_resyncs'
        ) AS task
    );
END $$
"""

BEFORE = """
CREATE OR REPLACE FUNCTION stagger_resyncs(batches integer, starts timestamptz, lasts interval)
RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    IF batches IS NULL OR batches < 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = concat('batches is ', batches, ': give a number from 1 on');
    END IF;
    RETURN (
        SELECT count(*) FILTER (WHERE task.is_new)
        FROM (
            SELECT id, starts + lasts * mod(row_number() OVER (ORDER BY id) - 1, batches) / batches AS due
            FROM dispensaries WHERE crawl_enabled AND platform_dispensary_id IS NOT NULL
            ORDER BY id::text
        ) AS store
        CROSS JOIN LATERAL celeriac.enqueue(
            'product_resync', jsonb_build_object('dispensary_id', store.id), scheduled_for => store.due,
            task_id => concat('resync ', store.id, ' of ', to_char(starts AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24MI')),
            enqueued_by => 'stagger_resyncs'
        ) AS task
    );
END $$
"""


def upgrade() -> None:
    op.execute(STAGGER_RESYNCS)


def downgrade() -> None:
    op.execute(BEFORE)
