-- Models that unmanaged runs log (MLflow 3). Data that decide nothing, beside the log: a rebuild of the views does not touch them.
-- Their parameters, tags and files are in the tables of those of runs, under the negative number of the model.

CREATE TABLE unmanaged_models (
    experiment_id  bigint  NOT NULL,
    model_number   integer NOT NULL,
    name           text    NOT NULL,
    model_type     text    NOT NULL,
    status         text    NOT NULL,
    source_run_id  text    NOT NULL,
    user_name      text    NOT NULL,
    created_us     bigint  NOT NULL,
    updated_us     bigint  NOT NULL,
    deleted        boolean NOT NULL DEFAULT false,
    PRIMARY KEY (experiment_id, model_number)
);
COMMENT ON COLUMN unmanaged_models.source_run_id IS 'The run that made it; empty: none.';
COMMENT ON COLUMN unmanaged_models.user_name IS 'The user whose token made it.';
COMMENT ON COLUMN unmanaged_tags.trial_number IS '0: a tag of the experiment. Negative: of a logged model.';
COMMENT ON COLUMN unmanaged_parameters.trial_number IS 'Negative: of a logged model.';
COMMENT ON COLUMN unmanaged_artifacts.trial_number IS 'Negative: of a logged model.';

CREATE TABLE unmanaged_model_metrics (
    experiment_id  bigint           NOT NULL,
    model_number   integer          NOT NULL,
    name           text             NOT NULL,
    run_id         text             NOT NULL,
    dataset_name   text             NOT NULL,
    dataset_digest text             NOT NULL,
    step           bigint           NOT NULL,
    time_ms        bigint           NOT NULL,
    value          double precision NOT NULL,
    PRIMARY KEY (experiment_id, model_number, name, run_id, dataset_name, dataset_digest)
);
COMMENT ON TABLE unmanaged_model_metrics IS 'The newest value of each metric, by the run that measured it and the data set. All values are in the run.';

CREATE TABLE unmanaged_model_uses (
    experiment_id bigint  NOT NULL,
    trial_number  integer NOT NULL,
    output        boolean NOT NULL,
    model_id      text    NOT NULL,
    step          bigint  NOT NULL,
    PRIMARY KEY (experiment_id, trial_number, output, model_id, step)
);
COMMENT ON TABLE unmanaged_model_uses IS 'Models that a run says it made (output) or reads.';
