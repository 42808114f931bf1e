-- How many points a run has of each metric, so that their number is bounded without counting them at each batch.

ALTER TABLE unmanaged_latest ADD COLUMN points bigint NOT NULL DEFAULT 0;
UPDATE unmanaged_latest l SET points = (
    SELECT count(*) FROM unmanaged_metrics m
    WHERE m.experiment_id = l.experiment_id AND m.trial_number = l.trial_number AND m.name = l.name);
