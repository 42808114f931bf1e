-- The schema that all migrations together make. Written by docs/generate_schema.py; do not edit.

CREATE FUNCTION public.append_events(p_ids uuid[], p_streams text[], p_types text[], p_schema_versions integer[], p_times_us bigint[], p_actors text[], p_correlation_ids text[], p_causation_ids uuid[], p_seen_positions bigint[], p_traces text[], p_payloads bytea[], p_guard_streams text[], p_guard_versions bigint[], p_consumer text, p_consumer_position bigint, p_consumer_commits bigint, p_next_position bigint, OUT first_position bigint, OUT versions bigint[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
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

CREATE FUNCTION public.flat_hyperparameters(given jsonb) RETURNS TABLE(name text, number double precision, text text)
    LANGUAGE sql IMMUTABLE
    AS $$
    WITH RECURSIVE flat(name, value) AS (
        SELECT key, value FROM jsonb_each(given)
        UNION ALL
        SELECT flat.name || '.' || inner_.key, inner_.value
        FROM flat, jsonb_each(CASE WHEN jsonb_typeof(flat.value) = 'object' THEN flat.value ELSE '{}' END) AS inner_)
    SELECT left(flat.name, 256), CASE WHEN jsonb_typeof(value) = 'number' THEN (value #>> '{}')::double precision END,
        left(coalesce(value #>> '{}', 'null'), 200)
    FROM flat WHERE jsonb_typeof(value) <> 'object'
$$;

CREATE FUNCTION public.refuse_log_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'the event log is append-only: % on % is refused', TG_OP, TG_TABLE_NAME USING ERRCODE = '42501';
END
$$;

CREATE TABLE public.agents (
    agent_id text NOT NULL,
    pool text NOT NULL,
    host text NOT NULL,
    version text NOT NULL,
    state text NOT NULL,
    slots jsonb NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    joined_us bigint NOT NULL,
    lost_us bigint,
    unlimited text DEFAULT ''::text NOT NULL,
    runtimes text[] DEFAULT '{process}'::text[] NOT NULL,
    notice text DEFAULT ''::text NOT NULL,
    image text DEFAULT ''::text NOT NULL
);

COMMENT ON COLUMN public.agents.state IS 'joined or lost.';

COMMENT ON COLUMN public.agents.unlimited IS 'Why its runs are without some of the limits that its operator set; empty: they have them, or none are set.';

COMMENT ON COLUMN public.agents.runtimes IS 'How it can run workers: process, docker.';

COMMENT ON COLUMN public.agents.notice IS 'Words of the provider of its machine on that machine''s end; empty: it gave no notice.';

COMMENT ON COLUMN public.agents.image IS 'Image in which it runs as a whole, for trials that name it and no others; empty: none.';

CREATE TABLE public.allocations (
    allocation_id text NOT NULL,
    trial_id text NOT NULL,
    experiment_id bigint NOT NULL,
    pool text NOT NULL,
    state text NOT NULL,
    slots jsonb NOT NULL,
    outcome text,
    exit_code integer,
    error text,
    granted_us bigint NOT NULL,
    started_us bigint,
    exited_us bigint,
    released_us bigint,
    granted_position bigint DEFAULT 0 NOT NULL,
    leaving_us bigint,
    leaving_position bigint
);

COMMENT ON COLUMN public.allocations.state IS 'granted, starting, running, preempting, exited or released.';

COMMENT ON COLUMN public.allocations.granted_position IS 'Of its AllocationGranted.';

COMMENT ON COLUMN public.allocations.leaving_us IS 'When its workers were first told to save and leave, or were killed; null where they were not.';

COMMENT ON COLUMN public.allocations.leaving_position IS 'Of that AllocationPreempted or AllocationResized.';

CREATE TABLE public.automation_parked (
    number bigint NOT NULL,
    automation text NOT NULL,
    rule text NOT NULL,
    "position" bigint NOT NULL,
    event_type text NOT NULL,
    reason text NOT NULL,
    parked_us bigint NOT NULL,
    retries integer DEFAULT 0 NOT NULL,
    retry_asked boolean DEFAULT false NOT NULL
);

ALTER TABLE public.automation_parked ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.automation_parked_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.automation_rules (
    automation text NOT NULL,
    rule text NOT NULL,
    "position" bigint NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    problem text DEFAULT ''::text NOT NULL,
    next_us bigint
);

COMMENT ON COLUMN public.automation_rules."position" IS 'Of the last event in the log that the rule has handled, or passed over.';

CREATE TABLE public.automations (
    name text NOT NULL,
    owner text NOT NULL,
    run bigint NOT NULL,
    source text NOT NULL,
    created_us bigint NOT NULL,
    seen_us bigint NOT NULL,
    ended boolean DEFAULT false NOT NULL
);

COMMENT ON COLUMN public.automations.run IS 'Number of starts: a process that was started earlier moves nothing any more.';

CREATE TABLE public.checkpoints (
    consumer text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    commits bigint NOT NULL
)
WITH (fillfactor='50');

COMMENT ON COLUMN public.checkpoints.commits IS 'Counts the moves: an instance that holds an old count is fenced.';

CREATE TABLE public.closed_slots (
    agent_id text NOT NULL,
    slot_id integer NOT NULL,
    drain boolean NOT NULL
);

COMMENT ON COLUMN public.closed_slots.slot_id IS '-1: the whole agent.';

COMMENT ON COLUMN public.closed_slots.drain IS 'What ran there may go on to its end.';

CREATE TABLE public.effect_positions (
    consumer text NOT NULL,
    "position" bigint NOT NULL
)
WITH (fillfactor='50');

COMMENT ON TABLE public.effect_positions IS 'Every event up to here is handled. Only used where the bus has lost its own memory of that; behind it at worst.';

CREATE TABLE public.events (
    "position" bigint NOT NULL,
    id uuid NOT NULL,
    stream text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    type text NOT NULL,
    schema_version integer NOT NULL,
    time_us bigint NOT NULL,
    actor text NOT NULL,
    correlation_id text NOT NULL COLLATE pg_catalog."C",
    causation_id uuid,
    seen_position bigint NOT NULL,
    trace text NOT NULL,
    payload bytea NOT NULL,
    hash bytea NOT NULL
);

COMMENT ON TABLE public.events IS 'The log. Append-only: written by append_events alone.';

COMMENT ON COLUMN public.events.payload IS 'The exact JSON bytes that were hashed.';

COMMENT ON COLUMN public.events.hash IS 'sha256 of the hash before it and of all other columns, in the binary record format (length before each field).';

CREATE TABLE public.experiments (
    experiment_id bigint NOT NULL,
    name text NOT NULL,
    description text NOT NULL,
    labels text[] NOT NULL,
    user_name text NOT NULL,
    state text NOT NULL,
    method text NOT NULL,
    metric text NOT NULL,
    smaller_is_better boolean NOT NULL,
    pool text NOT NULL,
    slots_per_trial integer NOT NULL,
    priority integer NOT NULL,
    weight double precision NOT NULL,
    max_slots integer,
    seed bigint NOT NULL,
    config text NOT NULL,
    context_hash text NOT NULL,
    context_size_bytes bigint NOT NULL,
    submitted_us bigint NOT NULL,
    ended_us bigint,
    error text,
    best_trial_id text,
    best_metric double precision,
    max_trials integer,
    max_concurrent_trials integer,
    note text DEFAULT ''::text NOT NULL,
    archived boolean DEFAULT false NOT NULL,
    deletion_due_us bigint,
    deleted_us bigint,
    workspace text NOT NULL,
    project text DEFAULT ''::text NOT NULL,
    parent_id bigint
);

COMMENT ON COLUMN public.experiments.state IS 'active, paused, canceling, completed, failed or canceled.';

COMMENT ON COLUMN public.experiments.config IS 'The configuration as recorded, JSON.';

COMMENT ON COLUMN public.experiments.max_trials IS 'In all; NULL: the method plans them itself.';

COMMENT ON COLUMN public.experiments.max_concurrent_trials IS 'At once; NULL: there is only one.';

COMMENT ON COLUMN public.experiments.archived IS 'True: lists leave it out, unless they ask for archived ones.';

COMMENT ON COLUMN public.experiments.deletion_due_us IS 'When it is deleted; null: it is not to be, or is.';

COMMENT ON COLUMN public.experiments.deleted_us IS 'When its files, metrics and log lines were deleted.';

COMMENT ON COLUMN public.experiments.project IS 'Empty: none.';

COMMENT ON COLUMN public.experiments.parent_id IS 'Experiment that it was made from; null: none.';

CREATE TABLE public.foreign_events (
    "position" bigint NOT NULL,
    experiment_id bigint NOT NULL
);

COMMENT ON COLUMN public.foreign_events.experiment_id IS '0: it may change any experiment.';

CREATE TABLE public.ingress_positions (
    lane text NOT NULL,
    agent_id text NOT NULL,
    spool_id text NOT NULL,
    sequence bigint NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='50');

COMMENT ON TABLE public.ingress_positions IS 'The last report of each spool that is committed. Behind the record at worst: a report that comes again changes nothing.';

CREATE TABLE public.log_head (
    one boolean DEFAULT true NOT NULL,
    "position" bigint NOT NULL,
    hash bytea NOT NULL,
    CONSTRAINT log_head_one_check CHECK (one)
)
WITH (fillfactor='10');

CREATE TABLE public.metric_writes (
    single_row boolean DEFAULT true NOT NULL,
    last_number bigint NOT NULL,
    CONSTRAINT metric_writes_single_row_check CHECK (single_row)
);

CREATE TABLE public.parked (
    number bigint NOT NULL,
    consumer text NOT NULL,
    item_id text NOT NULL,
    kind text NOT NULL,
    body bytea NOT NULL,
    reason text NOT NULL,
    parked_at timestamp with time zone DEFAULT now() NOT NULL,
    retry_asked_at timestamp with time zone,
    retries integer DEFAULT 0 NOT NULL,
    token_digest bytea
);

COMMENT ON TABLE public.parked IS 'Events and reports that a view, an effect or a receiver could not handle. What came after them did not wait.';

COMMENT ON COLUMN public.parked.item_id IS 'Of an event its id, of a report lane/agent/spool/sequence: parked once, however often it comes.';

COMMENT ON COLUMN public.parked.retry_asked_at IS 'Set until its consumer has tried it again; it is removed when that succeeds.';

COMMENT ON COLUMN public.parked.retries IS 'How often it was tried again, and failed.';

COMMENT ON COLUMN public.parked.token_digest IS 'Of a report: SHA-256 of the token that came with it, so that a retry believes no more than the first time.';

ALTER TABLE public.parked ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.parked_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.passwords (
    id text NOT NULL,
    hash text NOT NULL,
    created_us bigint NOT NULL
);

COMMENT ON COLUMN public.passwords.id IS 'As in UserPasswordSet: a hash that no user''s last one names is worth nothing.';

COMMENT ON COLUMN public.passwords.hash IS 'Argon2id, with its salt and parameters.';

CREATE TABLE public.projection_cursors (
    projection text NOT NULL,
    "position" bigint NOT NULL
)
WITH (fillfactor='50');

COMMENT ON TABLE public.projection_cursors IS 'Moves in the transaction that writes the read model.';

CREATE TABLE public.report_key (
    one boolean DEFAULT true NOT NULL,
    key text NOT NULL,
    CONSTRAINT report_key_one_check CHECK (one)
);

COMMENT ON TABLE public.report_key IS 'One row, made by the first service that needs it: the tokens of allocations are derived from it.';

CREATE TABLE public.schema_migrations (
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE public.secrets (
    user_name text NOT NULL,
    name text NOT NULL,
    value bytea NOT NULL,
    updated_us bigint NOT NULL
);

COMMENT ON TABLE public.secrets IS 'Not part of the record: a value that is removed or replaced is gone.';

COMMENT ON COLUMN public.secrets.value IS 'AES-256-GCM: nonce (12 bytes), tag (16), ciphertext. Bound to user and name.';

CREATE TABLE public.snapshots (
    number bigint NOT NULL,
    consumer text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    own_position bigint NOT NULL,
    rule_version integer NOT NULL,
    state bytea NOT NULL
);

ALTER TABLE public.snapshots ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.snapshots_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.streams (
    stream text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE public.token_uses (
    token_hash text NOT NULL,
    used_us bigint NOT NULL
);

CREATE TABLE public.trial_checkpoints (
    checkpoint_id text NOT NULL,
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    trial_id text NOT NULL,
    allocation_id text NOT NULL,
    batches bigint NOT NULL,
    length bigint NOT NULL,
    size_bytes bigint NOT NULL,
    files jsonb NOT NULL,
    location text NOT NULL,
    metric double precision,
    saved_us bigint NOT NULL,
    deleted_us bigint,
    damaged_us bigint,
    damage text,
    resumed_from text,
    deleted_position bigint
);

COMMENT ON COLUMN public.trial_checkpoints.metric IS 'The searcher''s metric, validated at the same number of batches.';

COMMENT ON COLUMN public.trial_checkpoints.damage IS 'The last time. Null: no run found it damaged.';

COMMENT ON COLUMN public.trial_checkpoints.resumed_from IS 'The checkpoint that the run went on from instead; null where none could be used.';

COMMENT ON COLUMN public.trial_checkpoints.deleted_position IS 'Of its CheckpointDeleted; null where it is there.';

CREATE TABLE public.trial_hyperparameters (
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    name text NOT NULL,
    number double precision,
    text text NOT NULL
);

COMMENT ON TABLE public.trial_hyperparameters IS 'To search by; trials.hyperparameters has them whole.';

COMMENT ON COLUMN public.trial_hyperparameters.name IS 'With dots for a nested one; its first 256 characters.';

COMMENT ON COLUMN public.trial_hyperparameters.number IS 'Null: the value is no number.';

COMMENT ON COLUMN public.trial_hyperparameters.text IS 'The value; its first 200 characters.';

CREATE TABLE public.trial_log_sizes (
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    bytes bigint NOT NULL
);

COMMENT ON COLUMN public.trial_log_sizes.bytes IS 'The limit itself: no line is kept any more, and the log says so.';

CREATE TABLE public.trial_logs (
    line bigint NOT NULL,
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    allocation_id text NOT NULL,
    agent_id text NOT NULL,
    rank integer NOT NULL,
    stream text NOT NULL,
    time_us bigint NOT NULL,
    text text NOT NULL,
    report_id uuid NOT NULL,
    report_index integer NOT NULL
);

COMMENT ON COLUMN public.trial_logs.report_id IS 'The report that carried the line: a report that comes twice is stored once.';

ALTER TABLE public.trial_logs ALTER COLUMN line ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.trial_logs_line_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.trial_metric_chunks (
    experiment_id bigint NOT NULL,
    first_batches bigint NOT NULL,
    last_batches bigint NOT NULL,
    last_us bigint NOT NULL,
    write_number bigint NOT NULL,
    trial_number integer NOT NULL,
    points integer NOT NULL,
    wide integer NOT NULL,
    fine_count integer NOT NULL,
    coarse_count integer NOT NULL,
    fine_exponent smallint NOT NULL,
    coarse_exponent smallint NOT NULL,
    names text[] NOT NULL,
    last_metrics jsonb NOT NULL,
    steps bytea NOT NULL,
    fine bytea NOT NULL,
    coarse bytea NOT NULL,
    numbers bytea NOT NULL
)
WITH (fillfactor='50');
ALTER TABLE ONLY public.trial_metric_chunks ALTER COLUMN steps SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.trial_metric_chunks ALTER COLUMN fine SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.trial_metric_chunks ALTER COLUMN coarse SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.trial_metric_chunks ALTER COLUMN numbers SET STORAGE EXTERNAL;

COMMENT ON TABLE public.trial_metric_chunks IS 'Training metrics. Chunks of a trial do not overlap; of a batch that was measured twice they have the newest measurement.';

COMMENT ON COLUMN public.trial_metric_chunks.write_number IS 'Of the last write that changed the row: who has seen that one asks for later ones.';

COMMENT ON COLUMN public.trial_metric_chunks.wide IS 'How many of the metrics, from the first on, have 8 bytes a value; the others have 4.';

COMMENT ON COLUMN public.trial_metric_chunks.fine_exponent IS 'Width of the buckets in batches, as a power of two; 63: there are none.';

COMMENT ON COLUMN public.trial_metric_chunks.last_metrics IS 'Metrics of the last point. NaN and infinities are strings.';

CREATE TABLE public.trial_validations (
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    batches bigint NOT NULL,
    length bigint NOT NULL,
    allocation_id text NOT NULL,
    time_us bigint NOT NULL,
    metrics jsonb NOT NULL,
    metric double precision
);

COMMENT ON COLUMN public.trial_validations.metric IS 'The searcher''s metric; null where it was not reported.';

CREATE TABLE public.trials (
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    trial_id text NOT NULL,
    state text NOT NULL,
    hyperparameters text NOT NULL,
    seed bigint NOT NULL,
    target_length bigint NOT NULL,
    batches bigint DEFAULT 0 NOT NULL,
    length bigint DEFAULT 0 NOT NULL,
    latest_metric double precision,
    best_metric double precision,
    best_batches bigint,
    allocation_id text,
    allocations integer DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    error text,
    outcome text,
    requested_us bigint NOT NULL,
    ended_us bigint,
    excluded_agents text[] DEFAULT '{}'::text[] NOT NULL,
    stragglers jsonb DEFAULT '[]'::jsonb NOT NULL,
    said_us bigint,
    leaving_us bigint,
    setbacks integer DEFAULT 0 NOT NULL,
    restart_at_us bigint,
    breaks text[] DEFAULT '{}'::text[] NOT NULL,
    decided_position bigint DEFAULT 0 NOT NULL,
    unmanaged boolean DEFAULT false NOT NULL,
    run_name text DEFAULT ''::text NOT NULL,
    run_user text DEFAULT ''::text NOT NULL,
    recorded_us bigint DEFAULT 0 NOT NULL,
    run_deleted boolean DEFAULT false NOT NULL
);

COMMENT ON COLUMN public.trials.state IS 'queued, starting, running, paused, stopping; then its outcome: completed, early_stopped, failed or canceled.';

COMMENT ON COLUMN public.trials.allocations IS 'How many it was granted.';

COMMENT ON COLUMN public.trials.excluded_agents IS 'Agents that it is not placed on again, sorted.';

COMMENT ON COLUMN public.trials.stragglers IS 'Slow ranks of the latest run that had any, in the order in which they were noticed.';

COMMENT ON COLUMN public.trials.said_us IS 'When its workers started, or last reported progress, a validation or a checkpoint.';

COMMENT ON COLUMN public.trials.leaving_us IS 'When its workers were told to leave; NULL: they were not.';

COMMENT ON COLUMN public.trials.setbacks IS 'Failures and losses in a row with nothing saved or validated between, where a pause follows.';

COMMENT ON COLUMN public.trials.restart_at_us IS 'When the pause before its next start ends; NULL: there is none.';

COMMENT ON COLUMN public.trials.breaks IS 'Sentences of its latest checkpoint that had any.';

COMMENT ON COLUMN public.trials.decided_position IS 'Of the event by which the search last decided about it.';

COMMENT ON COLUMN public.trials.run_user IS 'Of an unmanaged run: the user whose token started it.';

COMMENT ON COLUMN public.trials.recorded_us IS 'Of an unmanaged run: time of its start by the log. requested_us is by its program''s clock.';

CREATE TABLE public.unmanaged_artifact_totals (
    owner text NOT NULL,
    files bigint NOT NULL,
    size_bytes bigint NOT NULL
);

COMMENT ON COLUMN public.unmanaged_artifact_totals.owner IS 'Such as experiment/3 or user/ada.';

CREATE TABLE public.unmanaged_artifacts (
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    path text NOT NULL,
    size_bytes bigint NOT NULL,
    blob text NOT NULL,
    stored_us bigint NOT NULL,
    user_name text DEFAULT ''::text NOT NULL
);

COMMENT ON COLUMN public.unmanaged_artifacts.trial_number IS 'Negative: of a logged model.';

COMMENT ON COLUMN public.unmanaged_artifacts.blob IS 'Its key in the store of artifacts.';

COMMENT ON COLUMN public.unmanaged_artifacts.user_name IS 'User who started the run.';

CREATE TABLE public.unmanaged_inputs (
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    input_hash text NOT NULL,
    input text NOT NULL
);

COMMENT ON TABLE public.unmanaged_inputs IS 'Data sets that a run says it reads: JSON, as its program described them.';

CREATE TABLE public.unmanaged_latest (
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    name text NOT NULL,
    step bigint NOT NULL,
    time_ms bigint NOT NULL,
    value double precision NOT NULL,
    points bigint DEFAULT 0 NOT NULL
);

COMMENT ON TABLE public.unmanaged_latest IS 'Of each metric the value with the largest step, time and value: found without its history.';

CREATE TABLE public.unmanaged_metrics (
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    name text NOT NULL,
    step bigint NOT NULL,
    time_ms bigint NOT NULL,
    value double precision NOT NULL
);

CREATE TABLE public.unmanaged_model_metrics (
    experiment_id bigint NOT NULL,
    model_number integer NOT NULL,
    name text NOT NULL,
    run_id text NOT NULL,
    dataset_name text NOT NULL,
    dataset_digest text NOT NULL,
    step bigint NOT NULL,
    time_ms bigint NOT NULL,
    value double precision NOT NULL
);

COMMENT ON TABLE public.unmanaged_model_metrics IS 'The newest value of each metric, by the run that measured it and the data set. All values are in the run.';

CREATE TABLE public.unmanaged_model_uses (
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    output boolean NOT NULL,
    model_id text NOT NULL,
    step bigint NOT NULL
);

COMMENT ON TABLE public.unmanaged_model_uses IS 'Models that a run says it made (output) or reads.';

CREATE TABLE public.unmanaged_models (
    experiment_id bigint NOT NULL,
    model_number integer NOT NULL,
    name text NOT NULL,
    model_type text NOT NULL,
    status text NOT NULL,
    source_run_id text NOT NULL,
    user_name text NOT NULL,
    created_us bigint NOT NULL,
    updated_us bigint NOT NULL,
    deleted boolean DEFAULT false NOT NULL
);

COMMENT ON COLUMN public.unmanaged_models.source_run_id IS 'The run that made it; empty: none.';

COMMENT ON COLUMN public.unmanaged_models.user_name IS 'The user whose token made it.';

CREATE TABLE public.unmanaged_parameters (
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    name text NOT NULL,
    text text NOT NULL
);

COMMENT ON TABLE public.unmanaged_parameters IS 'Hyperparameters, as their program wrote them: written once, never changed.';

COMMENT ON COLUMN public.unmanaged_parameters.trial_number IS 'Negative: of a logged model.';

CREATE TABLE public.unmanaged_tags (
    experiment_id bigint NOT NULL,
    trial_number integer NOT NULL,
    name text NOT NULL,
    text text NOT NULL
);

COMMENT ON COLUMN public.unmanaged_tags.trial_number IS '0: a tag of the experiment. Negative: of a logged model.';

CREATE TABLE public.user_names (
    name text NOT NULL,
    first_experiment bigint NOT NULL
);

COMMENT ON COLUMN public.user_names.first_experiment IS 'Those before it were submitted by somebody who had the name earlier.';

INSERT INTO public.log_head VALUES (true, 0, '\x0000000000000000000000000000000000000000000000000000000000000000');

INSERT INTO public.metric_writes VALUES (true, 1);

SELECT pg_catalog.setval('public.automation_parked_number_seq', 1, false);

SELECT pg_catalog.setval('public.parked_number_seq', 1, false);

SELECT pg_catalog.setval('public.snapshots_number_seq', 1, false);

SELECT pg_catalog.setval('public.trial_logs_line_seq', 1, false);

ALTER TABLE ONLY public.agents
    ADD CONSTRAINT agents_pkey PRIMARY KEY (agent_id);

ALTER TABLE ONLY public.allocations
    ADD CONSTRAINT allocations_pkey PRIMARY KEY (allocation_id);

ALTER TABLE ONLY public.automation_parked
    ADD CONSTRAINT automation_parked_automation_rule_position_key UNIQUE (automation, rule, "position");

ALTER TABLE ONLY public.automation_parked
    ADD CONSTRAINT automation_parked_pkey PRIMARY KEY (number);

ALTER TABLE ONLY public.automation_rules
    ADD CONSTRAINT automation_rules_pkey PRIMARY KEY (automation, rule);

ALTER TABLE ONLY public.automations
    ADD CONSTRAINT automations_pkey PRIMARY KEY (name);

ALTER TABLE ONLY public.checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (consumer);

ALTER TABLE ONLY public.closed_slots
    ADD CONSTRAINT closed_slots_pkey PRIMARY KEY (agent_id, slot_id);

ALTER TABLE ONLY public.effect_positions
    ADD CONSTRAINT effect_positions_pkey PRIMARY KEY (consumer);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_id_unique UNIQUE (id);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY ("position");

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_stream_version_unique UNIQUE (stream, version);

ALTER TABLE ONLY public.experiments
    ADD CONSTRAINT experiments_pkey PRIMARY KEY (experiment_id);

ALTER TABLE ONLY public.foreign_events
    ADD CONSTRAINT foreign_events_pkey PRIMARY KEY (experiment_id, "position");

ALTER TABLE ONLY public.ingress_positions
    ADD CONSTRAINT ingress_positions_pkey PRIMARY KEY (lane, agent_id, spool_id);

ALTER TABLE ONLY public.log_head
    ADD CONSTRAINT log_head_pkey PRIMARY KEY (one);

ALTER TABLE ONLY public.metric_writes
    ADD CONSTRAINT metric_writes_pkey PRIMARY KEY (single_row);

ALTER TABLE ONLY public.parked
    ADD CONSTRAINT parked_item_unique UNIQUE (consumer, item_id);

ALTER TABLE ONLY public.parked
    ADD CONSTRAINT parked_pkey PRIMARY KEY (number);

ALTER TABLE ONLY public.passwords
    ADD CONSTRAINT passwords_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.projection_cursors
    ADD CONSTRAINT projection_cursors_pkey PRIMARY KEY (projection);

ALTER TABLE ONLY public.report_key
    ADD CONSTRAINT report_key_pkey PRIMARY KEY (one);

ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (name);

ALTER TABLE ONLY public.secrets
    ADD CONSTRAINT secrets_pkey PRIMARY KEY (user_name, name);

ALTER TABLE ONLY public.snapshots
    ADD CONSTRAINT snapshots_consumer_unique UNIQUE (consumer, rule_version, "position");

ALTER TABLE ONLY public.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (number);

ALTER TABLE ONLY public.streams
    ADD CONSTRAINT streams_pkey PRIMARY KEY (stream);

ALTER TABLE ONLY public.token_uses
    ADD CONSTRAINT token_uses_pkey PRIMARY KEY (token_hash);

ALTER TABLE ONLY public.trial_checkpoints
    ADD CONSTRAINT trial_checkpoints_pkey PRIMARY KEY (checkpoint_id, trial_id);

ALTER TABLE ONLY public.trial_hyperparameters
    ADD CONSTRAINT trial_hyperparameters_pkey PRIMARY KEY (experiment_id, trial_number, name);

ALTER TABLE ONLY public.trial_log_sizes
    ADD CONSTRAINT trial_log_sizes_pkey PRIMARY KEY (experiment_id, trial_number);

ALTER TABLE ONLY public.trial_logs
    ADD CONSTRAINT trial_logs_pkey PRIMARY KEY (line);

ALTER TABLE ONLY public.trial_logs
    ADD CONSTRAINT trial_logs_report_unique UNIQUE (report_id, report_index);

ALTER TABLE ONLY public.trial_metric_chunks
    ADD CONSTRAINT trial_metric_chunks_pkey PRIMARY KEY (experiment_id, trial_number, first_batches);

ALTER TABLE ONLY public.trial_validations
    ADD CONSTRAINT trial_validations_pkey PRIMARY KEY (experiment_id, trial_number, batches);

ALTER TABLE ONLY public.trials
    ADD CONSTRAINT trials_id_unique UNIQUE (trial_id);

ALTER TABLE ONLY public.trials
    ADD CONSTRAINT trials_pkey PRIMARY KEY (experiment_id, trial_number);

ALTER TABLE ONLY public.unmanaged_artifact_totals
    ADD CONSTRAINT unmanaged_artifact_totals_pkey PRIMARY KEY (owner);

ALTER TABLE ONLY public.unmanaged_artifacts
    ADD CONSTRAINT unmanaged_artifacts_pkey PRIMARY KEY (experiment_id, trial_number, path);

ALTER TABLE ONLY public.unmanaged_inputs
    ADD CONSTRAINT unmanaged_inputs_pkey PRIMARY KEY (experiment_id, trial_number, input_hash);

ALTER TABLE ONLY public.unmanaged_latest
    ADD CONSTRAINT unmanaged_latest_pkey PRIMARY KEY (experiment_id, trial_number, name);

ALTER TABLE ONLY public.unmanaged_metrics
    ADD CONSTRAINT unmanaged_metrics_pkey PRIMARY KEY (experiment_id, trial_number, name, step, time_ms, value);

ALTER TABLE ONLY public.unmanaged_model_metrics
    ADD CONSTRAINT unmanaged_model_metrics_pkey PRIMARY KEY (experiment_id, model_number, name, run_id, dataset_name, dataset_digest);

ALTER TABLE ONLY public.unmanaged_model_uses
    ADD CONSTRAINT unmanaged_model_uses_pkey PRIMARY KEY (experiment_id, trial_number, output, model_id, step);

ALTER TABLE ONLY public.unmanaged_models
    ADD CONSTRAINT unmanaged_models_pkey PRIMARY KEY (experiment_id, model_number);

ALTER TABLE ONLY public.unmanaged_parameters
    ADD CONSTRAINT unmanaged_parameters_pkey PRIMARY KEY (experiment_id, trial_number, name);

ALTER TABLE ONLY public.unmanaged_tags
    ADD CONSTRAINT unmanaged_tags_pkey PRIMARY KEY (experiment_id, trial_number, name);

ALTER TABLE ONLY public.user_names
    ADD CONSTRAINT user_names_pkey PRIMARY KEY (name);

CREATE INDEX allocations_experiment ON public.allocations USING btree (experiment_id, allocation_id);

CREATE INDEX allocations_granted ON public.allocations USING btree (granted_us, allocation_id);

CREATE INDEX allocations_live ON public.allocations USING btree (allocation_id) WHERE (released_us IS NULL);

CREATE INDEX allocations_trial ON public.allocations USING btree (trial_id, granted_us);

CREATE INDEX events_correlation ON public.events USING btree (correlation_id, "position");

CREATE INDEX experiments_context ON public.experiments USING btree (context_hash);

CREATE INDEX experiments_ended ON public.experiments USING btree (COALESCE(ended_us, '9223372036854775807'::bigint), experiment_id);

CREATE INDEX experiments_labels ON public.experiments USING gin (labels);

CREATE INDEX experiments_largest ON public.experiments USING btree (COALESCE(best_metric, '-Infinity'::double precision), experiment_id);

CREATE INDEX experiments_name ON public.experiments USING btree (lower(name), experiment_id);

CREATE INDEX experiments_parent ON public.experiments USING btree (parent_id, experiment_id) WHERE (parent_id IS NOT NULL);

CREATE INDEX experiments_smallest ON public.experiments USING btree (COALESCE(best_metric, 'Infinity'::double precision), experiment_id);

CREATE INDEX experiments_state ON public.experiments USING btree (state, experiment_id);

CREATE INDEX experiments_submitted ON public.experiments USING btree (submitted_us);

CREATE INDEX experiments_user ON public.experiments USING btree (user_name, experiment_id);

CREATE INDEX experiments_workspace ON public.experiments USING btree (workspace, project, experiment_id);

CREATE INDEX parked_to_retry ON public.parked USING btree (consumer, number) WHERE (retry_asked_at IS NOT NULL);

CREATE INDEX trial_checkpoints_trial ON public.trial_checkpoints USING btree (experiment_id, trial_number, batches);

CREATE INDEX trial_hyperparameters_number ON public.trial_hyperparameters USING btree (name, number);

CREATE INDEX trial_hyperparameters_text ON public.trial_hyperparameters USING btree (name, text);

CREATE INDEX trial_logs_experiment ON public.trial_logs USING btree (experiment_id, line);

CREATE INDEX trial_logs_trial ON public.trial_logs USING btree (experiment_id, trial_number, line);

CREATE TRIGGER events_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON public.events FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_log_change();

ALTER TABLE public.events ENABLE ALWAYS TRIGGER events_immutable;

ALTER TABLE ONLY public.automation_parked
    ADD CONSTRAINT automation_parked_automation_rule_fkey FOREIGN KEY (automation, rule) REFERENCES public.automation_rules(automation, rule) ON DELETE CASCADE;

ALTER TABLE ONLY public.automation_rules
    ADD CONSTRAINT automation_rules_automation_fkey FOREIGN KEY (automation) REFERENCES public.automations(name) ON DELETE CASCADE;

GRANT USAGE ON SCHEMA public TO tenuto_service;

REVOKE ALL ON FUNCTION public.append_events(p_ids uuid[], p_streams text[], p_types text[], p_schema_versions integer[], p_times_us bigint[], p_actors text[], p_correlation_ids text[], p_causation_ids uuid[], p_seen_positions bigint[], p_traces text[], p_payloads bytea[], p_guard_streams text[], p_guard_versions bigint[], p_consumer text, p_consumer_position bigint, p_consumer_commits bigint, p_next_position bigint, OUT first_position bigint, OUT versions bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION public.append_events(p_ids uuid[], p_streams text[], p_types text[], p_schema_versions integer[], p_times_us bigint[], p_actors text[], p_correlation_ids text[], p_causation_ids uuid[], p_seen_positions bigint[], p_traces text[], p_payloads bytea[], p_guard_streams text[], p_guard_versions bigint[], p_consumer text, p_consumer_position bigint, p_consumer_commits bigint, p_next_position bigint, OUT first_position bigint, OUT versions bigint[]) TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.agents TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.allocations TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.automation_parked TO tenuto_service;

GRANT USAGE ON SEQUENCE public.automation_parked_number_seq TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.automation_rules TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.automations TO tenuto_service;

GRANT SELECT ON TABLE public.checkpoints TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.closed_slots TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.effect_positions TO tenuto_service;

GRANT SELECT ON TABLE public.events TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.experiments TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.foreign_events TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.ingress_positions TO tenuto_service;

GRANT SELECT ON TABLE public.log_head TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.metric_writes TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.parked TO tenuto_service;

GRANT USAGE ON SEQUENCE public.parked_number_seq TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.passwords TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.projection_cursors TO tenuto_service;

GRANT SELECT,INSERT ON TABLE public.report_key TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.secrets TO tenuto_service;

GRANT SELECT,INSERT,DELETE ON TABLE public.snapshots TO tenuto_service;

GRANT SELECT ON TABLE public.streams TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.token_uses TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.trial_checkpoints TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.trial_hyperparameters TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.trial_log_sizes TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.trial_logs TO tenuto_service;

GRANT USAGE ON SEQUENCE public.trial_logs_line_seq TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.trial_metric_chunks TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.trial_validations TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.trials TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.unmanaged_artifact_totals TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.unmanaged_artifacts TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.unmanaged_inputs TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.unmanaged_latest TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.unmanaged_metrics TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.unmanaged_model_metrics TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.unmanaged_model_uses TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.unmanaged_models TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.unmanaged_parameters TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.unmanaged_tags TO tenuto_service;

GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLE public.user_names TO tenuto_service;

ALTER DEFAULT PRIVILEGES FOR ROLE tenuto_owner IN SCHEMA public GRANT USAGE ON SEQUENCES TO tenuto_service;

ALTER DEFAULT PRIVILEGES FOR ROLE tenuto_owner IN SCHEMA public GRANT SELECT,INSERT,DELETE,TRUNCATE,UPDATE ON TABLES TO tenuto_service;
