-- How agents run workers, and what the provider of their machine said of its end. Folded from the log by the projection `views`.

ALTER TABLE agents ADD COLUMN runtimes text[] NOT NULL DEFAULT '{process}';
ALTER TABLE agents ADD COLUMN notice text NOT NULL DEFAULT '';
COMMENT ON COLUMN agents.runtimes IS 'How it can run workers: process, docker.';
COMMENT ON COLUMN agents.notice IS 'Words of the provider of its machine on that machine''s end; empty: it gave no notice.';
