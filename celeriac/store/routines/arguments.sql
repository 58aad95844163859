-- What `celeriac.enqueue` does to a call: refuse it, derive its keys, fit its arguments to the handler's parameters.

CREATE OR REPLACE FUNCTION celeriac.refuse(code text, says text, advice text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = says || '; nothing was enqueued', HINT = advice;
END $$;

-- JSON as jsonb keeps it tells whole numbers from others by their scale alone. How Python writes the others depends on
-- their size, so they are refused.
CREATE OR REPLACE FUNCTION celeriac.text(role text, given jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    plain text := given #>> '{}';
BEGIN
    CASE jsonb_typeof(given)
        WHEN 'string' THEN RETURN plain;
        WHEN 'null' THEN RETURN 'None';
        WHEN 'boolean' THEN RETURN initcap(plain);
        WHEN 'number' THEN
            IF scale(plain::numeric) = 0 THEN
                RETURN plain;
            END IF;
        ELSE NULL;
    END CASE;
    PERFORM celeriac.refuse('0A000', role || ': SQL derives no key from ' || left(given::text, 100),
        'Give account, lock_key or unique_key yourself.');
END $$;

-- What stands between braces is the plain name of a parameter, or the format asks for more than SQL can do.
CREATE OR REPLACE FUNCTION celeriac.key(role text, option text, key text, bound jsonb) RETURNS text LANGUAGE plpgsql
AS $$
DECLARE
    part text;
    made text := '';
BEGIN
    IF key IS NULL OR bound ? key THEN
        RETURN CASE WHEN bound -> key <> 'null' THEN celeriac.text(role, bound -> key) END;
    END IF;
    FOR part IN SELECT m[1] FROM regexp_matches(key, '\{\{|\}\}|\{[^{}]*\}|[^{}]+|[{}]', 'g') AS m LOOP
        IF part IN ('{{', '}}') THEN
            made := made || left(part, 1);
        ELSIF left(part, 1) = '{' AND bound ? btrim(part, '{}') THEN
            made := made || celeriac.text(role, bound -> btrim(part, '{}'));
        ELSIF position('{' IN key) > 0 AND left(part, 1) NOT IN ('{', '}') THEN
            made := made || part;
        ELSE
            PERFORM celeriac.refuse('0A000', role || ': ' || option || '=' || quote_literal(key)
                || ' is more than SQL can derive', 'Give account, lock_key or unique_key yourself.');
        END IF;
    END LOOP;
    RETURN made;
END $$;

-- A bare parameter's name is part of the key, as locks hold across roles.
CREATE OR REPLACE FUNCTION celeriac.lock_of(role text, rule jsonb, bound jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN position('{' IN rule ->> 'lock_by') = 0 THEN (rule ->> 'lock_by') || ':' ELSE '' END
        || celeriac.key(role, 'lock_by', rule ->> 'lock_by', bound);
END $$;

-- With `unique_while='due'` what is planned for later takes the key of that time alone.
CREATE OR REPLACE FUNCTION celeriac.unique_of(role text, rule jsonb, bound jsonb, scheduled_for timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN celeriac.key(role, 'unique_by', rule ->> 'unique_by', bound)
        || CASE WHEN rule ->> 'unique_while' = 'due' AND scheduled_for > statement_timestamp()
            THEN to_char(scheduled_for AT TIME ZONE 'UTC', '"@"YYYY-MM-DD"T"HH24:MI:SS.US"Z"') ELSE '' END;
END $$;

-- INVARIANT of the result: `bound` has every parameter of the handler; `args` and `kwargs` are what the row stores,
-- by name wherever the handler can be called so.
CREATE OR REPLACE FUNCTION celeriac.bind(role text, parameters jsonb, args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    places text[];
    words text[];
    defaults jsonb;
    collects jsonb;
    required text[];
    given jsonb := args;
    wrong text;
BEGIN
    SELECT coalesce(array_agg(p ->> 'name' ORDER BY n) FILTER (WHERE left(p ->> 'kind', 10) = 'POSITIONAL'), '{}'),
        coalesce(array_agg(p ->> 'name')
            FILTER (WHERE p ->> 'kind' IN ('POSITIONAL_OR_KEYWORD', 'KEYWORD_ONLY')), '{}'),
        coalesce(jsonb_object_agg(p ->> 'name', p -> 'default') FILTER (WHERE p ? 'default'), '{}'),
        coalesce(jsonb_object_agg(p ->> 'name', p ->> 'kind') FILTER (WHERE left(p ->> 'kind', 4) = 'VAR_'), '{}'),
        coalesce(array_agg(p ->> 'name' ORDER BY n)
            FILTER (WHERE NOT p ? 'default' AND left(p ->> 'kind', 4) <> 'VAR_'), '{}')
    INTO places, words, defaults, collects, required
    FROM jsonb_array_elements(parameters) WITH ORDINALITY AS p (p, n);

    IF jsonb_typeof(args) = 'array' THEN
        SELECT coalesce(jsonb_object_agg(places[n], a), '{}') INTO given
        FROM jsonb_array_elements(args) WITH ORDINALITY AS a (a, n) WHERE n <= cardinality(places);
        IF jsonb_array_length(args) > cardinality(places)
            AND NOT jsonb_path_exists(collects, '$.* ? (@ == "VAR_POSITIONAL")') THEN
            wrong := 'it takes ' || cardinality(places) || ' arguments by position, not ' || jsonb_array_length(args);
        END IF;
    ELSIF jsonb_typeof(args) = 'object' THEN
        SELECT 'it takes no argument ' || quote_literal(min(name)) || ' by name' INTO wrong
        FROM jsonb_object_keys(args) AS name
        WHERE name <> ALL (words) AND (name = ANY (places)
            OR NOT jsonb_path_exists(collects, '$.* ? (@ == "VAR_KEYWORD")'))
        HAVING count(*) > 0;
    ELSE
        wrong := 'args must be an object of arguments by name, or an array of them by position';
    END IF;
    SELECT coalesce(wrong, 'it misses the argument ' || quote_literal(min(name))) INTO wrong
    FROM unnest(required) AS name WHERE NOT given ? name HAVING count(*) > 0 OR wrong IS NOT NULL;
    IF wrong IS NOT NULL THEN
        PERFORM celeriac.refuse('22023', role || ': ' || wrong,
            'Its parameters: ' || (SELECT coalesce(string_agg(p ->> 'name', ', '), 'none')
                FROM jsonb_array_elements(parameters) AS p));
    END IF;
    RETURN jsonb_build_object('bound', defaults || given || (
            SELECT coalesce(jsonb_object_agg(name, '[]'::jsonb), '{}') FROM jsonb_object_keys(collects) AS name))
        || CASE
            WHEN jsonb_typeof(args) = 'array' AND (NOT places <@ words
                OR jsonb_path_exists(collects, '$.* ? (@ == "VAR_POSITIONAL")'))
            THEN jsonb_build_object('args', args, 'kwargs', '{}'::jsonb)
            ELSE jsonb_build_object('args', '[]'::jsonb, 'kwargs', given)
        END;
END $$;

CREATE OR REPLACE FUNCTION celeriac.readable(role text, body jsonb, most bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    written text := body::text;
    size bigint := octet_length(written);
BEGIN
    IF size > most THEN
        PERFORM celeriac.refuse('54000', role || ': the arguments take ' || size || ' bytes, the limit is ' || most,
            'Store the data and pass its key; CELERIAC_MAX_ARGUMENT_BYTES of the declaring code is the limit.');
    END IF;
    IF length(written) - length(translate(written, '[{', '')) > 100 AND jsonb_path_exists(
        body, 'strict $.**{100} ? (@.type() == "object" || @.type() == "array")') THEN
        PERFORM celeriac.refuse('22023', role || ': arguments may nest 100 levels deep, no deeper', 'Flatten them.');
    END IF;
    IF position('"__type__"' IN written) > 0 AND EXISTS (
        SELECT FROM jsonb_path_query(body, 'strict $.** ? (exists(@."__type__") && exists(@."__value__"))') AS o
        WHERE (SELECT count(*) FROM jsonb_object_keys(o)) = 2) THEN
        PERFORM celeriac.refuse('22023', role || ': an object of __type__ and __value__ is kombu''s own notation',
            'Pass dates and the like as text.');
    END IF;
    IF written ~ '[0-9]{255}' AND EXISTS (
        SELECT FROM jsonb_path_query(body, 'strict $.** ? (@.type() == "number")') AS n
        WHERE length(n::text) > 4300) THEN
        PERFORM celeriac.refuse('22023', role || ': Python reads no number of more than 4300 digits',
            'Pass it as text.');
    END IF;
END $$;

CREATE OR REPLACE FUNCTION celeriac.fits(role text, fits boolean, option text, given text, advice text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT fits THEN
        PERFORM celeriac.refuse('22023', role || ': ' || option || '=' || left(quote_literal(given), 100), advice);
    END IF;
END $$;

-- A value without what stands under these names, however deep.
CREATE OR REPLACE FUNCTION celeriac.without_names(value jsonb, names text[]) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN CASE jsonb_typeof(value)
        WHEN 'object' THEN coalesce((SELECT jsonb_object_agg(e.key, celeriac.without_names(e.value, names))
            FROM jsonb_each(value) AS e WHERE NOT e.key = ANY (names)), '{}')
        WHEN 'array' THEN coalesce((SELECT jsonb_agg(celeriac.without_names(e.value, names) ORDER BY e.n)
            FROM jsonb_array_elements(value) WITH ORDINALITY AS e (value, n)), '[]')
        ELSE value END;
END $$;

-- Whether two calls of a role are others. What it calls sensitive is no part of them: who has the id of a task could
-- find out by trying what it was called with.
CREATE OR REPLACE FUNCTION celeriac.are_other_calls(
    of_role text, args jsonb, kwargs jsonb, other_args jsonb, other_kwargs jsonb
) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    names text[];
    parameters jsonb;
BEGIN
    IF (args, kwargs) = (other_args, other_kwargs) THEN
        RETURN false;
    END IF;
    SELECT ARRAY(SELECT jsonb_array_elements_text(r.definition -> 'sensitive')), r.parameters INTO names, parameters
    FROM celeriac.roles r WHERE r.role = of_role AND jsonb_typeof(r.definition -> 'sensitive') = 'array';
    IF coalesce(cardinality(names), 0) = 0 THEN
        RETURN true;
    END IF;
    RETURN celeriac.open_call(args, kwargs, parameters, names)
        <> celeriac.open_call(other_args, other_kwargs, parameters, names);
END $$;

-- Positional arguments by the names of their parameters; those beyond them, which go to `*args`, by their place.
CREATE OR REPLACE FUNCTION celeriac.named(args jsonb, parameters jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_object_agg(coalesce(CASE WHEN left(p ->> 'kind', 10) = 'POSITIONAL' THEN p ->> 'name' END,
        CAST(n AS text)), value), '{}')
    FROM jsonb_array_elements(args) WITH ORDINALITY AS a (value, n), LATERAL (
        SELECT parameters -> CAST(n - 1 AS integer)) AS of_place (p)
$$;

-- A call without what stands under these names, nor what goes to `*args` or `**kwargs` if that is one of them.
CREATE OR REPLACE FUNCTION celeriac.open_call(args jsonb, kwargs jsonb, parameters jsonb, names text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    WITH collects AS (
        SELECT coalesce(bool_or(p ->> 'kind' = 'VAR_POSITIONAL'), false) AS places,
            coalesce(bool_or(p ->> 'kind' = 'VAR_KEYWORD'), false) AS words
        FROM jsonb_array_elements(parameters) AS p WHERE p ->> 'name' = ANY (names)
    )
    SELECT celeriac.without_names(celeriac.named(coalesce((
            SELECT jsonb_agg(CASE WHEN coalesce(parameters -> CAST(a.n - 1 AS integer) ->> 'name', CAST(a.n AS text))
                = ANY (names) THEN 'null' ELSE a.value END ORDER BY a.n)
            FROM jsonb_array_elements(args) WITH ORDINALITY AS a (value, n)
            WHERE NOT c.places OR a.n <= (SELECT count(*) FROM jsonb_array_elements(parameters) AS p
                WHERE left(p ->> 'kind', 10) = 'POSITIONAL')), '[]'), parameters)
        || CASE WHEN c.words THEN coalesce((
            SELECT jsonb_object_agg(k.key, k.value) FROM jsonb_each(kwargs) AS k
            WHERE EXISTS (SELECT FROM jsonb_array_elements(parameters) AS p
                WHERE p ->> 'name' = k.key AND p ->> 'kind' IN ('POSITIONAL_OR_KEYWORD', 'KEYWORD_ONLY'))), '{}')
            ELSE kwargs END, names)
    FROM collects AS c
$$;
