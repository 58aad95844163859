-- A role's limits. A rate reads "10/m": so many a second, a minute or an hour.

CREATE OR REPLACE FUNCTION celeriac.burst(rate text) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN rate IS NOT NULL THEN greatest(1, CAST(split_part(rate, '/', 1) AS double precision)) END
$$;

CREATE OR REPLACE FUNCTION celeriac.per_second(rate text) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
SELECT CAST(split_part(rate, '/', 1) AS double precision)
    / CASE split_part(rate, '/', 2) WHEN 's' THEN 1 WHEN 'm' THEN 60 WHEN 'h' THEN 3600 END
$$;

-- How many tasks of a role with a rate may begin now.
CREATE OR REPLACE FUNCTION celeriac.tokens(l celeriac.role_limits) RETURNS double precision LANGUAGE sql AS $$
SELECT least(celeriac.burst(l.rate_limit), l.tokens
    + greatest(0, extract(epoch FROM clock_timestamp() - l.taken_at)) * celeriac.per_second(l.rate_limit))
$$;

CREATE OR REPLACE FUNCTION celeriac.declared_limits(definition jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
SELECT jsonb_build_object('rate_limit', definition -> 'rate_limit', 'timeout', definition -> 'timeout',
    'hard_timeout', definition -> 'hard_timeout')
$$;
