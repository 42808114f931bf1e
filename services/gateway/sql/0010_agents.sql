-- What is out of service is what users closed (closed_slots); nothing else ever was. Folded from the log by the projection `views`.

ALTER TABLE agents DROP COLUMN disabled_slots;
COMMENT ON COLUMN agents.state IS 'joined or lost.';
