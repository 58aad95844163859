-- Where a finished task's row lies: history has a partition for each day, and whoever named a task without its day would
-- plan for all of them and lock each with its indexes. The triggers of `history` keep it.
CREATE TABLE celeriac.ended (
    id bigint NOT NULL,
    day date NOT NULL,
    task_id text NOT NULL,
    parent_id bigint,
    workflow text,
    barrier uuid
);
CREATE INDEX ended_id ON celeriac.ended (id);
CREATE INDEX ended_task_id ON celeriac.ended (task_id);
CREATE INDEX ended_of_day ON celeriac.ended (day, id);
CREATE INDEX ended_of_parent ON celeriac.ended (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX ended_of_workflow ON celeriac.ended (workflow) WHERE workflow IS NOT NULL;
CREATE INDEX ended_of_barrier ON celeriac.ended (barrier) WHERE barrier IS NOT NULL;

-- Days whose rows `ended` may lack: those there were before it, until `celeriac.list_history` has gone through them.
CREATE TABLE celeriac.unlisted (day date PRIMARY KEY);

-- Days that are dropped, whose rows `ended` may still have.
CREATE TABLE celeriac.dropped_days (day date PRIMARY KEY);

-- The roles that a day has rows of, and those of which it has successes of groups' members: of a day that is over.
CREATE TABLE celeriac.history_days (
    day date PRIMARY KEY,
    roles text[] NOT NULL,
    members text[] NOT NULL
);

CREATE FUNCTION celeriac.list_ended() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;

CREATE TRIGGER history_listed AFTER INSERT ON celeriac.history
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION celeriac.list_ended();
CREATE TRIGGER history_relisted AFTER UPDATE ON celeriac.history
REFERENCING OLD TABLE AS gone NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION celeriac.list_ended();
CREATE TRIGGER history_unlisted AFTER DELETE ON celeriac.history
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION celeriac.list_ended();

INSERT INTO celeriac.unlisted (day)
SELECT to_date(substr(c.relname, 9), 'YYYYMMDD') FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = CAST('celeriac.history' AS regclass) AND c.relname ~ '^history_[0-9]{8}$'
UNION
SELECT CAST(completed_at AT TIME ZONE 'UTC' AS date) FROM celeriac.history_rest;

-- Vacuum by table: what loses rows at the pace of tasks is not left until a fifth of it is dead, and is cleaned without
-- rests, since what waits behind dead entries is every claim.
ALTER TABLE celeriac.tasks SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE celeriac.ready_0 SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE celeriac.ready_1 SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE celeriac.ready_2 SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE celeriac.later SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE celeriac.behind SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE celeriac.locks SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE celeriac.looks SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE celeriac.joins SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE celeriac.intake SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE celeriac.tickets SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE celeriac.batchers SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0);
-- A day that is dropped leaves a small part of it dead, however many days there are.
ALTER TABLE celeriac.ended SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
