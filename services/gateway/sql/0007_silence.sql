-- When each trial was last heard of, told to leave, and will start again. Folded from the log by the projection `views`.

ALTER TABLE trials ADD COLUMN said_us bigint, ADD COLUMN leaving_us bigint, ADD COLUMN setbacks integer NOT NULL DEFAULT 0,
    ADD COLUMN restart_at_us bigint;
COMMENT ON COLUMN trials.said_us IS 'When its workers started, or last reported progress, a validation or a checkpoint.';
COMMENT ON COLUMN trials.leaving_us IS 'When its workers were told to leave; NULL: they were not.';
COMMENT ON COLUMN trials.setbacks IS 'Failures and losses in a row with nothing saved or validated between, where a pause follows.';
COMMENT ON COLUMN trials.restart_at_us IS 'When the pause before its next start ends; NULL: there is none.';
