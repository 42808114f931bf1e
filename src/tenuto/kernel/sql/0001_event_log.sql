-- The event log: one dense, hash-chained, append-only table, and what has to move in the same transaction with it.
--
-- Positions come from one head row, locked until commit. A sequence would be faster for concurrent writers, but a reader
-- that asks for "position > last" would then miss events that commit late. With the head row, whoever has seen position p
-- has seen everything up to p.

CREATE TABLE events (
    position        bigint  PRIMARY KEY,
    id              uuid    NOT NULL CONSTRAINT events_id_unique UNIQUE,
    stream          text    COLLATE "C" NOT NULL, -- an index in the system's collation breaks when that is upgraded
    version         bigint  NOT NULL,
    type            text    NOT NULL,
    schema_version  integer NOT NULL,
    time_us         bigint  NOT NULL,
    actor           text    NOT NULL,
    correlation_id  text    COLLATE "C" NOT NULL,
    causation_id    uuid,
    seen_position   bigint  NOT NULL,
    trace           text    NOT NULL,
    payload         bytea   NOT NULL,
    hash            bytea   NOT NULL,
    CONSTRAINT events_stream_version_unique UNIQUE (stream, version)
);
CREATE INDEX events_correlation ON events (correlation_id, position);

COMMENT ON TABLE events IS 'The log. Append-only: written by append_events alone.';
COMMENT ON COLUMN events.payload IS 'The exact JSON bytes that were hashed.';
COMMENT ON COLUMN events.hash IS
    'sha256 of the hash before it and of all other columns, in the binary record format (length before each field).';

-- The version of every stream. Asking the events table for it would cost more with every stream there is.
-- The fill factor leaves room to update a hot stream's row in place.
CREATE TABLE streams (
    stream  text   COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL
) WITH (fillfactor = 70);

CREATE TABLE log_head (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    position bigint  NOT NULL,
    hash     bytea   NOT NULL
) WITH (fillfactor = 10);
INSERT INTO log_head (position, hash) VALUES (0, decode(repeat('00', 32), 'hex'));

CREATE TABLE checkpoints (
    consumer text   COLLATE "C" PRIMARY KEY,
    position bigint NOT NULL,
    commits  bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON COLUMN checkpoints.commits IS 'Counts the moves: an instance that holds an old count is fenced.';

CREATE TABLE snapshots (
    number       bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer     text    COLLATE "C" NOT NULL,
    position     bigint  NOT NULL,
    own_position bigint  NOT NULL,
    rule_version integer NOT NULL,
    state        bytea   NOT NULL,
    CONSTRAINT snapshots_consumer_unique UNIQUE (consumer, rule_version, position)
);

-- Nobody changes the log. ALWAYS: also under session_replication_role = replica.
CREATE FUNCTION refuse_log_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the event log is append-only: % on % is refused', TG_OP, TG_TABLE_NAME USING ERRCODE = '42501';
END
$$;
CREATE TRIGGER events_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_log_change();
ALTER TABLE events ENABLE ALWAYS TRIGGER events_immutable;

-- One atomic step: the checkpoint moves, all guards hold, the events are appended. All or nothing.
--
-- Errors: TN001 fenced; TN002 a guard does not hold (detail: actual version, a space, the stream);
-- unique_violation on events_id_unique: an event is already recorded.
CREATE FUNCTION append_events(
    p_ids uuid[], p_streams text[], p_types text[], p_schema_versions integer[], p_times_us bigint[], p_actors text[],
    p_correlation_ids text[], p_causation_ids uuid[], p_seen_positions bigint[], p_traces text[], p_payloads bytea[],
    p_guard_streams text[], p_guard_versions bigint[],
    p_consumer text, p_consumer_position bigint, p_consumer_commits bigint, p_next_position bigint,
    OUT first_position bigint, OUT versions bigint[]
) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan -- planning each call anew for its arrays costs as much as running it
AS $$
DECLARE
    n         integer := cardinality(p_ids);
    head      bigint;
    chain     bytea;
    preimages bytea[];
    hashes    bytea[] := '{}';
    conflict  record;
    version_1 bigint;
BEGIN
    -- The hash covers the bytes of texts as they are sent to this client.
    IF current_setting('client_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'append_events needs client_encoding UTF8';
    END IF;

    IF p_consumer IS NOT NULL THEN
        IF p_consumer_commits = 0 AND p_consumer_position = 0 THEN
            INSERT INTO checkpoints VALUES (p_consumer, p_next_position, 1) ON CONFLICT DO NOTHING;
        ELSE
            UPDATE checkpoints SET position = p_next_position, commits = commits + 1
            WHERE consumer = p_consumer AND position = p_consumer_position AND commits = p_consumer_commits;
        END IF;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the checkpoint of % was moved by another instance', p_consumer USING ERRCODE = 'TN001';
        END IF;
    END IF;
    IF n = 0 AND cardinality(p_guard_streams) = 0 THEN
        RETURN;
    END IF;

    SELECT h.position, h.hash INTO STRICT head, chain FROM log_head h FOR UPDATE;

    IF cardinality(p_guard_streams) > 0 THEN
        SELECT g.stream, g.actual INTO conflict
        FROM (SELECT u.stream, u.expected, u.ord,
                     coalesce((SELECT s.version FROM streams s WHERE s.stream = u.stream), 0) AS actual
              FROM unnest(p_guard_streams, p_guard_versions) WITH ORDINALITY AS u (stream, expected, ord)) g
        WHERE g.actual <> g.expected ORDER BY g.ord LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'a stream is not at the expected version'
                USING ERRCODE = 'TN002', DETAIL = conflict.actual || ' ' || conflict.stream;
        END IF;
    END IF;
    IF n = 0 THEN
        RETURN;
    END IF;

    first_position := head + 1;

    -- One event is what most appends of a calm cluster hold: without sets it takes three quarters of the time.
    IF n = 1 THEN
        INSERT INTO streams AS s (stream, version) VALUES (p_streams[1], 1)
        ON CONFLICT (stream) DO UPDATE SET version = s.version + 1 RETURNING s.version INTO version_1;
        versions := ARRAY[version_1];
        chain := sha256(chain || record_send(ROW(
            first_position, p_ids[1], p_streams[1], version_1, p_types[1], p_schema_versions[1], p_times_us[1], p_actors[1],
            p_correlation_ids[1], p_causation_ids[1], p_seen_positions[1], p_traces[1], p_payloads[1])));
        INSERT INTO events (position, id, stream, version, type, schema_version, time_us, actor, correlation_id, causation_id,
                            seen_position, trace, payload, hash)
        VALUES (first_position, p_ids[1], p_streams[1], version_1, p_types[1], p_schema_versions[1], p_times_us[1],
                p_actors[1], p_correlation_ids[1], p_causation_ids[1], p_seen_positions[1], p_traces[1], p_payloads[1], chain);
        UPDATE log_head SET position = first_position, hash = chain;
        PERFORM pg_notify('tenuto_log', first_position::text);
        RETURN;
    END IF;

    INSERT INTO streams AS s (stream, version)
    SELECT u.stream, count(*) FROM unnest(p_streams) AS u (stream) GROUP BY u.stream ORDER BY u.stream
    ON CONFLICT (stream) DO UPDATE SET version = s.version + excluded.version;

    -- Versions are counted down from the new version of each stream, so one look-up per event is enough.
    SELECT array_agg(v.version ORDER BY v.ord) INTO versions
    FROM (SELECT u.ord, (SELECT s.version FROM streams s WHERE s.stream = u.stream)
                        + 1 - row_number() OVER (PARTITION BY u.stream ORDER BY u.ord DESC) AS version
          FROM unnest(p_streams) WITH ORDINALITY AS u (stream, ord)) v;

    -- A scan of unnest yields its elements in order; sorting whole rows again would cost as much as the hashing.
    SELECT array_agg(record_send(ROW(head + u.ord, u.id, u.stream, u.version, u.type, u.schema_version, u.time_us, u.actor,
                                     u.correlation_id, u.causation_id, u.seen_position, u.trace, u.payload)))
    INTO preimages
    FROM unnest(p_ids, p_streams, versions, p_types, p_schema_versions, p_times_us, p_actors, p_correlation_ids,
                p_causation_ids, p_seen_positions, p_traces, p_payloads) WITH ORDINALITY
         AS u (id, stream, version, type, schema_version, time_us, actor, correlation_id, causation_id, seen_position,
               trace, payload, ord);

    FOR i IN 1..n LOOP
        chain := sha256(chain || preimages[i]);
        hashes[i] := chain;
    END LOOP;

    INSERT INTO events (position, id, stream, version, type, schema_version, time_us, actor, correlation_id, causation_id,
                        seen_position, trace, payload, hash)
    SELECT head + u.ord, u.id, u.stream, u.version, u.type, u.schema_version, u.time_us, u.actor, u.correlation_id,
           u.causation_id, u.seen_position, u.trace, u.payload, u.hash
    FROM unnest(p_ids, p_streams, versions, p_types, p_schema_versions, p_times_us, p_actors, p_correlation_ids,
                p_causation_ids, p_seen_positions, p_traces, p_payloads, hashes) WITH ORDINALITY
         AS u (id, stream, version, type, schema_version, time_us, actor, correlation_id, causation_id, seen_position,
               trace, payload, hash, ord);

    UPDATE log_head SET position = first_position + n - 1, hash = chain;
    PERFORM pg_notify('tenuto_log', (first_position + n - 1)::text);
END
$$;

-- The role of the services: appends through the function, reads the log, and writes read models. It can create nothing.
-- Roles belong to the whole server, so two databases may be migrated at once: the second one finds the role.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenuto_service') THEN
        CREATE ROLE tenuto_service LOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
END
$$;
REVOKE ALL ON FUNCTION append_events FROM PUBLIC;
GRANT EXECUTE ON FUNCTION append_events TO tenuto_service;
REVOKE CREATE ON SCHEMA public FROM PUBLIC; -- as PostgreSQL 15 and later have it
GRANT USAGE ON SCHEMA public TO tenuto_service;
GRANT SELECT ON events, streams, log_head, checkpoints TO tenuto_service;
GRANT SELECT, INSERT, DELETE ON snapshots TO tenuto_service;
-- Tables of later migrations are read models, unless they revoke this.
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON TABLES TO tenuto_service;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO tenuto_service;
