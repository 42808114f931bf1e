-- Images in which agents run as a whole. Folded from the log by the projection `views`.

ALTER TABLE agents ADD COLUMN image text NOT NULL DEFAULT '';
COMMENT ON COLUMN agents.image IS 'Image in which it runs as a whole, for trials that name it and no others; empty: none.';
