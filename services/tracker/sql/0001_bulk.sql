-- Training metrics and log lines: data that decides nothing, stored in bulk beside the log.

-- A trial that was resumed trains some batches again: the newest measurement of a batch stands.
CREATE TABLE trial_metrics (
    experiment_id bigint  NOT NULL,
    trial_number  integer NOT NULL,
    batches       bigint  NOT NULL,
    allocation_id text    NOT NULL,
    time_us       bigint  NOT NULL,
    metrics       jsonb   NOT NULL,
    PRIMARY KEY (experiment_id, trial_number, batches)
);
COMMENT ON COLUMN trial_metrics.metrics IS 'Averages since the point before, by name. NaN and infinities are strings.';

-- Line numbers grow in the order of arrival (one writer), so a reader that has seen line n asks for those after n.
CREATE TABLE trial_logs (
    line          bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    experiment_id bigint   NOT NULL,
    trial_number  integer  NOT NULL,
    allocation_id text     NOT NULL,
    agent_id      text     NOT NULL,
    rank          integer  NOT NULL,
    stream        text     NOT NULL,
    time_us       bigint   NOT NULL,
    text          text     NOT NULL,
    report_id     uuid     NOT NULL,
    report_index  integer  NOT NULL,
    CONSTRAINT trial_logs_report_unique UNIQUE (report_id, report_index)
);
COMMENT ON COLUMN trial_logs.report_id IS 'The report that carried the line: a report that comes twice is stored once.';
CREATE INDEX trial_logs_trial ON trial_logs (experiment_id, trial_number, line);
CREATE INDEX trial_logs_experiment ON trial_logs (experiment_id, line);
