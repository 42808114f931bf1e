-- What users look at, folded from the log by the gateway's projection `views`. All of it can be dropped and rebuilt.

CREATE TABLE experiments (
    experiment_id      bigint           PRIMARY KEY,
    name               text             NOT NULL,
    description        text             NOT NULL,
    labels             text[]           NOT NULL,
    user_name          text             NOT NULL,
    state              text             NOT NULL,
    method             text             NOT NULL,
    metric             text             NOT NULL,
    smaller_is_better  boolean          NOT NULL,
    pool               text             NOT NULL,
    slots_per_trial    integer          NOT NULL,
    priority           integer          NOT NULL,
    weight             double precision NOT NULL,
    max_slots          integer,
    seed               bigint           NOT NULL,
    config             text             NOT NULL,
    context_hash       text             NOT NULL,
    context_size_bytes bigint           NOT NULL,
    submitted_us       bigint           NOT NULL,
    ended_us           bigint,
    error              text,
    best_trial_id      text,
    best_metric        double precision
);
COMMENT ON COLUMN experiments.state IS 'active, paused, canceling, completed, failed or canceled.';
COMMENT ON COLUMN experiments.config IS 'The configuration as recorded, JSON.';

CREATE TABLE trials (
    experiment_id   bigint  NOT NULL,
    trial_number    integer NOT NULL,
    trial_id        text    NOT NULL,
    state           text    NOT NULL,
    hyperparameters text    NOT NULL,
    seed            bigint  NOT NULL,
    target_length   bigint  NOT NULL,
    batches         bigint  NOT NULL DEFAULT 0,
    length          bigint  NOT NULL DEFAULT 0,
    latest_metric   double precision,
    best_metric     double precision,
    best_batches    bigint,
    allocation_id   text,
    allocations     integer NOT NULL DEFAULT 0,
    failures        integer NOT NULL DEFAULT 0,
    error           text,
    outcome         text,
    reason          text    NOT NULL,
    requested_us    bigint  NOT NULL,
    ended_us        bigint,
    PRIMARY KEY (experiment_id, trial_number),
    CONSTRAINT trials_id_unique UNIQUE (trial_id)
);
COMMENT ON COLUMN trials.state IS
    'queued, starting, running, paused, stopping; then its outcome: completed, early_stopped, failed or canceled.';
COMMENT ON COLUMN trials.reason IS 'Why the search last decided about it, in words.';
COMMENT ON COLUMN trials.allocations IS 'How many it was granted.';

CREATE TABLE trial_validations (
    experiment_id bigint  NOT NULL,
    trial_number  integer NOT NULL,
    batches       bigint  NOT NULL,
    length        bigint  NOT NULL,
    allocation_id text    NOT NULL,
    time_us       bigint  NOT NULL,
    metrics       jsonb   NOT NULL,
    metric        double precision,
    PRIMARY KEY (experiment_id, trial_number, batches)
);
COMMENT ON COLUMN trial_validations.metric IS 'The searcher''s metric; null where it was not reported.';

CREATE TABLE trial_checkpoints (
    checkpoint_id text    NOT NULL,
    experiment_id bigint  NOT NULL,
    trial_number  integer NOT NULL,
    trial_id      text    NOT NULL,
    allocation_id text    NOT NULL,
    batches       bigint  NOT NULL,
    length        bigint  NOT NULL,
    size_bytes    bigint  NOT NULL,
    files         jsonb   NOT NULL,
    location      text    NOT NULL,
    metric        double precision,
    saved_us      bigint  NOT NULL,
    deleted_us    bigint,
    delete_reason text,
    PRIMARY KEY (checkpoint_id, trial_id)
);
COMMENT ON COLUMN trial_checkpoints.metric IS 'The searcher''s metric, validated at the same number of batches.';
CREATE INDEX trial_checkpoints_trial ON trial_checkpoints (experiment_id, trial_number, batches);

CREATE TABLE allocations (
    allocation_id text    PRIMARY KEY,
    trial_id      text    NOT NULL,
    experiment_id bigint  NOT NULL,
    pool          text    NOT NULL,
    state         text    NOT NULL,
    slots         jsonb   NOT NULL,
    reason        text    NOT NULL,
    outcome       text,
    exit_code     integer,
    error         text,
    granted_us    bigint  NOT NULL,
    started_us    bigint,
    exited_us     bigint,
    released_us   bigint
);
COMMENT ON COLUMN allocations.state IS 'granted, starting, running, preempting, exited or released.';
CREATE INDEX allocations_experiment ON allocations (experiment_id, allocation_id);
CREATE INDEX allocations_live ON allocations (allocation_id) WHERE released_us IS NULL;

CREATE TABLE agents (
    agent_id       text      PRIMARY KEY,
    pool           text      NOT NULL,
    host           text      NOT NULL,
    version        text      NOT NULL,
    state          text      NOT NULL,
    slots          jsonb     NOT NULL,
    disabled_slots integer[] NOT NULL DEFAULT '{}',
    reason         text      NOT NULL DEFAULT '',
    joined_us      bigint    NOT NULL,
    lost_us        bigint
);
COMMENT ON COLUMN agents.state IS 'joined, draining or lost.';
