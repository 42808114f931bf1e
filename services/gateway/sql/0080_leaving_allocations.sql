-- When and why the workers of an allocation were told to leave. Folded from the log by the projection `views`.

ALTER TABLE allocations ADD COLUMN leaving_us bigint, ADD COLUMN leaving_position bigint;
COMMENT ON COLUMN allocations.leaving_us IS 'When its workers were first told to save and leave, or were killed; null where they were not.';
COMMENT ON COLUMN allocations.leaving_position IS 'Of that AllocationPreempted or AllocationResized.';
CREATE INDEX allocations_trial ON allocations (trial_id, granted_us);
