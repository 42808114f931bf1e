-- Why a trial is not resumed or repeated exactly. Folded from the log by the projection `views`.

ALTER TABLE trials ADD COLUMN breaks text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN trials.breaks IS 'Sentences of its latest checkpoint that had any.';
