-- Unmanaged runs: trained by programs that Tenuto did not start, and tracked here.

-- Folded from the log by the projection `views`.
ALTER TABLE trials
    ADD COLUMN unmanaged boolean NOT NULL DEFAULT false,
    ADD COLUMN run_name  text    NOT NULL DEFAULT '',
    ADD COLUMN run_user  text    NOT NULL DEFAULT '',
    ADD COLUMN recorded_us bigint NOT NULL DEFAULT 0,
    ADD COLUMN run_deleted boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN trials.run_user IS 'Of an unmanaged run: the user whose token started it.';
COMMENT ON COLUMN trials.recorded_us IS 'Of an unmanaged run: time of its start by the log. requested_us is by its program''s clock.';

-- Data that decide nothing, beside the log: a rebuild of the views does not touch them.
CREATE TABLE unmanaged_parameters (
    experiment_id bigint  NOT NULL,
    trial_number  integer NOT NULL,
    name          text    NOT NULL,
    text          text    NOT NULL,
    PRIMARY KEY (experiment_id, trial_number, name)
);
COMMENT ON TABLE unmanaged_parameters IS 'Hyperparameters, as their program wrote them: written once, never changed.';

CREATE TABLE unmanaged_tags (
    experiment_id bigint  NOT NULL,
    trial_number  integer NOT NULL,
    name          text    NOT NULL,
    text          text    NOT NULL,
    PRIMARY KEY (experiment_id, trial_number, name)
);
COMMENT ON COLUMN unmanaged_tags.trial_number IS '0: a tag of the experiment.';

-- Every value that was logged. A program may log many under one step, and the same batch again where an answer was lost: the key
-- is the whole row, so that the second one adds nothing.
CREATE TABLE unmanaged_metrics (
    experiment_id bigint           NOT NULL,
    trial_number  integer          NOT NULL,
    name          text             NOT NULL,
    step          bigint           NOT NULL,
    time_ms       bigint           NOT NULL,
    value         double precision NOT NULL,
    PRIMARY KEY (experiment_id, trial_number, name, step, time_ms, value)
);

CREATE TABLE unmanaged_latest (
    experiment_id bigint           NOT NULL,
    trial_number  integer          NOT NULL,
    name          text             NOT NULL,
    step          bigint           NOT NULL,
    time_ms       bigint           NOT NULL,
    value         double precision NOT NULL,
    PRIMARY KEY (experiment_id, trial_number, name)
);
COMMENT ON TABLE unmanaged_latest IS 'Of each metric the value with the largest step, time and value: found without its history.';

CREATE TABLE unmanaged_inputs (
    experiment_id bigint  NOT NULL,
    trial_number  integer NOT NULL,
    input_hash    text    NOT NULL,
    input         text    NOT NULL,
    PRIMARY KEY (experiment_id, trial_number, input_hash)
);
COMMENT ON TABLE unmanaged_inputs IS 'Data sets that a run says it reads: JSON, as its program described them.';

CREATE TABLE unmanaged_artifacts (
    experiment_id bigint  NOT NULL,
    trial_number  integer NOT NULL,
    path          text    NOT NULL,
    size_bytes    bigint  NOT NULL,
    blob          text    NOT NULL,
    stored_us     bigint  NOT NULL,
    PRIMARY KEY (experiment_id, trial_number, path)
);
COMMENT ON COLUMN unmanaged_artifacts.blob IS 'Its key in the store of artifacts.';
