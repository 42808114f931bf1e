-- What people say of an experiment after its submission. Folded from the log by the projection `views`.

ALTER TABLE experiments ADD COLUMN note text NOT NULL DEFAULT '', ADD COLUMN archived boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN experiments.archived IS 'True: lists leave it out, unless they ask for archived ones.';
