-- Where a trial failed in a way that its experiment's log policies name. Folded from the log by the projection `views`.

ALTER TABLE trials ADD COLUMN excluded_agents text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN trials.excluded_agents IS 'Agents that it is not placed on again, sorted.';
