-- Events that change what is shown of an experiment, and are not of it (their correlation is another): a view of the past folds
-- these with the experiment's own. Folded from the log by the projection `views`.

CREATE TABLE foreign_events (
    position      bigint NOT NULL,
    experiment_id bigint NOT NULL,
    PRIMARY KEY (experiment_id, position)
);
COMMENT ON COLUMN foreign_events.experiment_id IS '0: it may change any experiment.';

INSERT INTO foreign_events SELECT position, 0 FROM events WHERE type = 'ProjectChanged';
INSERT INTO foreign_events
SELECT DISTINCT e.position, c.experiment_id
FROM events e
    JOIN trial_checkpoints c ON c.checkpoint_id = convert_from(e.payload, 'UTF8')::json ->> 'checkpoint_id'
    JOIN experiments theirs ON theirs.experiment_id = c.experiment_id
    JOIN experiments own ON own.experiment_id::text = e.correlation_id AND own.user_name = theirs.user_name
    LEFT JOIN user_names u ON u.name = own.user_name
WHERE e.type = 'CheckpointDamaged' AND c.experiment_id <> own.experiment_id
    AND (theirs.experiment_id >= coalesce(u.first_experiment, 1)) = (own.experiment_id >= coalesce(u.first_experiment, 1));
