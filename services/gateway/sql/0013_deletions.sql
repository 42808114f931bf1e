-- Experiments that are to be deleted, or were. Folded from the log by the projection `views`.

ALTER TABLE experiments ADD COLUMN deletion_due_us bigint, ADD COLUMN deleted_us bigint;
COMMENT ON COLUMN experiments.deletion_due_us IS 'When it is deleted; null: it is not to be, or is.';
COMMENT ON COLUMN experiments.deleted_us IS 'When its files, metrics and log lines were deleted.';
CREATE INDEX experiments_context ON experiments (context_hash);
