-- As `celeriac.store.ids.fresh_id`: a UUID of version 7, which Postgres has from its version 18 on.
CREATE OR REPLACE FUNCTION celeriac.fresh_id() RETURNS text LANGUAGE sql AS $$
    SELECT CAST(CAST(encode(set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
            PLACING substring(int8send(CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)) FROM 3) FROM 1),
        52, 1), 53, 1), 'hex') AS uuid) AS text)
$$;

-- The name of a role's tasks of this queue in `ready`, `later`, `behind`, `parked`, `tickets` and passes; null: of the
-- role's first. Neither name has a comma. `celeriac.roles.role.lane_of` in Python.
CREATE OR REPLACE FUNCTION celeriac.lane(role text, queue text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN queue IS NULL THEN role ELSE role || ',' || queue END
$$;

-- The role of a lane.
CREATE OR REPLACE FUNCTION celeriac.role_of(lane text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT split_part(lane, ',', 1)
$$;
