-- Part of a workspace that an experiment belongs to.

ALTER TABLE experiments ADD COLUMN project text NOT NULL DEFAULT '';
COMMENT ON COLUMN experiments.project IS 'Empty: none.';
CREATE INDEX experiments_workspace ON experiments (workspace, project, experiment_id);
