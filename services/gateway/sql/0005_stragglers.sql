-- Which ranks of a trial were found to be slow. Folded from the log by the projection `views`.

ALTER TABLE trials ADD COLUMN stragglers jsonb NOT NULL DEFAULT '[]';
COMMENT ON COLUMN trials.stragglers IS 'Slow ranks of the latest run that had any, in the order in which they were noticed.';
