-- The first id of each day (UTC), as `celeriac.begin_day` found it: ids grow, so an id tells the day its task was enqueued.
-- `first` grows with `day`.
CREATE TABLE celeriac.days_begun (
    day date PRIMARY KEY,
    first bigint NOT NULL CONSTRAINT days_begun_first UNIQUE
);

-- The text that each routine was last made from, and what Postgres had of it then, as hashes: a migrate replaces what is
-- another now.
CREATE TABLE celeriac.routines (
    name text PRIMARY KEY,
    text text NOT NULL,
    made text NOT NULL
);
