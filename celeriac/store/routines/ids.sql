-- As `celeriac.store.ids.fresh_id`: a UUID of version 7, which Postgres has from its version 18 on.
CREATE OR REPLACE FUNCTION celeriac.fresh_id() RETURNS text LANGUAGE sql AS $$
    SELECT CAST(CAST(encode(set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
            PLACING substring(int8send(CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)) FROM 3) FROM 1),
        52, 1), 53, 1), 'hex') AS uuid) AS text)
$$;
