-- Of each trial, what its log lines take, so that a trial that starts again and again is bounded as a whole.
CREATE TABLE trial_log_sizes (
    experiment_id bigint  NOT NULL,
    trial_number  integer NOT NULL,
    bytes         bigint  NOT NULL,
    PRIMARY KEY (experiment_id, trial_number)
);
COMMENT ON COLUMN trial_log_sizes.bytes IS 'The limit itself: no line is kept any more, and the log says so.';
