-- Agents whose runs are without limits that their operators set. Folded from the log by the projection `views`.

ALTER TABLE agents ADD COLUMN unlimited text NOT NULL DEFAULT '';
COMMENT ON COLUMN agents.unlimited IS 'Why its runs are without some of the limits that its operator set; empty: they have them, or none are set.';
