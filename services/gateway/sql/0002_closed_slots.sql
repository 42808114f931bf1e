-- What users took out of service. Folded from the log by the projection `views`, as all of 0001.

CREATE TABLE closed_slots (
    agent_id text    NOT NULL,
    slot_id  integer NOT NULL,
    drain    boolean NOT NULL,
    PRIMARY KEY (agent_id, slot_id)
);
COMMENT ON COLUMN closed_slots.slot_id IS '-1: the whole agent.';
COMMENT ON COLUMN closed_slots.drain IS 'What ran there may go on to its end.';
