-- A decision's sentence is made of what was recorded when somebody reads it, so that the views name the event and hold no sentence.
-- Folded from the log by the projection `views`.

ALTER TABLE trials DROP COLUMN reason, ADD COLUMN decided_position bigint NOT NULL DEFAULT 0;
ALTER TABLE allocations DROP COLUMN reason, ADD COLUMN granted_position bigint NOT NULL DEFAULT 0;
ALTER TABLE trial_checkpoints DROP COLUMN delete_reason, ADD COLUMN deleted_position bigint;
COMMENT ON COLUMN trials.decided_position IS 'Of the event by which the search last decided about it.';
COMMENT ON COLUMN allocations.granted_position IS 'Of its AllocationGranted.';
COMMENT ON COLUMN trial_checkpoints.deleted_position IS 'Of its CheckpointDeleted; null where it is there.';
