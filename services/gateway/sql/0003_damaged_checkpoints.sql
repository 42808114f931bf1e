-- What a run found wrong with a checkpoint that it was to resume from. Folded from the log by the projection `views`, as all of 0001.

ALTER TABLE trial_checkpoints ADD COLUMN damaged_us bigint, ADD COLUMN damage text, ADD COLUMN resumed_from text;
COMMENT ON COLUMN trial_checkpoints.damage IS 'The last time. Null: no run found it damaged.';
COMMENT ON COLUMN trial_checkpoints.resumed_from IS 'The checkpoint that the run went on from instead; null where none could be used.';
