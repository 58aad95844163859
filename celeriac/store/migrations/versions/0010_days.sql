-- What failed or was cancelled is listed in `ended` with what lists of it need: few do.
ALTER TABLE celeriac.ended ADD status text, ADD role text, ADD account text, ADD completed_at timestamptz;
-- And what waited for members, with the barrier.
ALTER TABLE celeriac.ended ADD awaits uuid;

-- The days of history. Those that are over are closed: `day_roles` tells what each has. `closing`: the transaction after
-- whose end nothing is written to the day that `day_changes` does not tell. `is_empty`: it has none. `is_listed`: what failed on it is in `ended`.
CREATE TABLE celeriac.days (
    day date PRIMARY KEY,
    closing xid8,
    is_closed boolean NOT NULL DEFAULT false,
    is_empty boolean NOT NULL DEFAULT false,
    is_listed boolean NOT NULL DEFAULT true
);
CREATE INDEX days_open ON celeriac.days (day) WHERE NOT is_closed;
CREATE INDEX days_empty ON celeriac.days (day) WHERE is_empty;
CREATE INDEX days_not_listed ON celeriac.days (day) WHERE NOT is_listed;

-- How many tasks of a role ended on a day that is closed. `members`: successes of groups' members.
CREATE TABLE celeriac.day_roles (
    day date NOT NULL,
    role text NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    members bigint NOT NULL,
    PRIMARY KEY (day, role)
);
CREATE INDEX day_roles_of_role ON celeriac.day_roles (role, day);
CREATE INDEX day_roles_with_members ON celeriac.day_roles (role, day) WHERE members > 0;

-- Their sums.
CREATE TABLE celeriac.role_totals (
    role text PRIMARY KEY,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL
);

-- What was written to days other than the present one since they were closed, to be added to the above: append-only, so
-- that nobody who writes waits for another.
CREATE TABLE celeriac.day_changes (
    day date NOT NULL,
    role text NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    members bigint NOT NULL
);
CREATE INDEX day_changes_of_day ON celeriac.day_changes (day);

INSERT INTO celeriac.days (day, is_listed)
SELECT to_date(substr(c.relname, 9), 'YYYYMMDD'), false
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = CAST('celeriac.history' AS regclass) AND c.relname ~ '^history_[0-9]{8}$'
UNION
SELECT CAST(completed_at AT TIME ZONE 'UTC' AS date), false FROM celeriac.history_rest;
