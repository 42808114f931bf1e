-- Where an experiment belongs: what a user may see is asked by the workspace.

ALTER TABLE experiments ADD COLUMN workspace text NOT NULL DEFAULT 'default';
UPDATE experiments SET workspace = coalesce(config::jsonb -> 'resources' ->> 'workspace', 'default');
ALTER TABLE experiments ALTER COLUMN workspace DROP DEFAULT;
