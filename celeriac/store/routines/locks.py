"""Who leads a lock key next."""

from __future__ import annotations

# Lets the best waiting task of each key lead it, where none does; one that is held back (its role or account is paused,
# or its account's cap is 0) only if there is no other.
# INVARIANT: whoever ends a leader, and whoever lines up behind one and commits soon, calls this for the key before
# committing. The advisory lock orders them: the second looks when the first has committed, and sees it. Keys share 1024
# such locks, so that no transaction can fill Postgres' table of locks.
# A concurrent leader is no error: then the key has one. A key that somebody's open transaction holds for longer is left
# to the sweep rather than waited for: the timeout is the function's own, as what follows in the transaction may have to
# wait longer.
LEAD = """
CREATE OR REPLACE FUNCTION celeriac_lead(keys text[]) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    wanted text;
    turn integer;
    promoted integer := 0;
BEGIN
    FOR wanted, turn IN SELECT DISTINCT key, hashtext(key) & 1023 FROM unnest(keys) AS key ORDER BY 2, 1 LOOP
        BEGIN
            PERFORM pg_advisory_xact_lock(hashtext('celeriac lead'), turn);
            UPDATE worker_tasks SET waits_for = NULL, updated_at = clock_timestamp()
            WHERE id = coalesce((
                SELECT id FROM worker_tasks
                WHERE waits_for = 'lock' AND lock_key = wanted
                    AND role <> ALL (ARRAY(SELECT r.role FROM roles r WHERE r.paused))
                    AND (SELECT p.paused OR p.cap = 0 FROM account_policies p
                        WHERE p.account = worker_tasks.account) IS NOT TRUE
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
