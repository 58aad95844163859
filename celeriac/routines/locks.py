"""Who leads a lock key next."""

from __future__ import annotations

# Lets the best waiting task of each key lead it, where none does; one of a paused role only if there is no other.
# A concurrent leader is no error: then the key has one. A key whose next leader somebody's open transaction holds is
# left to the sweep rather than waited for: the timeout is the function's own, as what follows in the transaction may
# have to wait longer.
LEAD = """
CREATE OR REPLACE FUNCTION celeriac_lead(keys text[]) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    wanted text;
    promoted integer := 0;
BEGIN
    FOR wanted IN SELECT DISTINCT unnest(keys) ORDER BY 1 LOOP
        BEGIN
            UPDATE worker_tasks SET waits_for = NULL, updated_at = clock_timestamp()
            WHERE id = coalesce((
                SELECT id FROM worker_tasks
                WHERE waits_for = 'lock' AND lock_key = wanted
                    AND role <> ALL (ARRAY(SELECT r.role FROM roles r WHERE r.paused))
                ORDER BY priority DESC, scheduled_for, id
                LIMIT 1 FOR UPDATE SKIP LOCKED
            ), (
                SELECT id FROM worker_tasks
                WHERE waits_for = 'lock' AND lock_key = wanted
                ORDER BY priority DESC, scheduled_for, id
                LIMIT 1 FOR UPDATE SKIP LOCKED
            )) AND NOT EXISTS (
                SELECT FROM worker_tasks l
                WHERE l.lock_key = wanted AND l.waits_for IS NULL
                  AND l.status IN ('pending', 'claimed', 'running')
            );
            promoted := promoted + (CASE WHEN FOUND THEN 1 ELSE 0 END);
        EXCEPTION WHEN unique_violation OR lock_not_available THEN
            NULL;
        END;
    END LOOP;
    RETURN promoted;
END $$
"""

ROUTINES = (LEAD,)
