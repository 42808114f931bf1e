-- How many trials a search may have, now: people change it while it runs. Folded from the log by the projection `views`.

ALTER TABLE experiments ADD COLUMN max_trials integer, ADD COLUMN max_concurrent_trials integer;
COMMENT ON COLUMN experiments.max_trials IS 'In all; NULL: the method plans them itself.';
COMMENT ON COLUMN experiments.max_concurrent_trials IS 'At once; NULL: there is only one.';
UPDATE experiments SET
    max_trials = (config::jsonb -> 'searcher' ->> 'max_trials')::integer,
    max_concurrent_trials = (config::jsonb -> 'searcher' ->> 'max_concurrent_trials')::integer;
