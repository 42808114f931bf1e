-- Experiments that others were made from: forks, continuations and reproductions are found by them.

ALTER TABLE experiments ADD COLUMN parent_id bigint;
COMMENT ON COLUMN experiments.parent_id IS 'Experiment that it was made from; null: none.';
UPDATE experiments e SET parent_id = (convert_from(s.payload, 'UTF8')::json #>> '{parent,experiment_id}')::bigint
FROM events s WHERE s.correlation_id = e.experiment_id::text AND s.type = 'ExperimentSubmitted';
CREATE INDEX experiments_parent ON experiments (parent_id, experiment_id) WHERE parent_id IS NOT NULL;
