-- The first id of each day (UTC), as `celeriac.begin_day` found it: ids grow, so an id tells the day its task was enqueued.
-- `first` grows with `day`.
CREATE TABLE celeriac.days_begun (
    day date PRIMARY KEY,
    first bigint NOT NULL CONSTRAINT days_begun_first UNIQUE
);
