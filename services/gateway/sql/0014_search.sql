-- What experiments are found by. Folded from the log by the projection `views`.

CREATE TABLE trial_hyperparameters (
    experiment_id bigint  NOT NULL,
    trial_number  integer NOT NULL,
    name          text    NOT NULL,
    number        double precision,
    text          text    NOT NULL,
    PRIMARY KEY (experiment_id, trial_number, name)
);
COMMENT ON TABLE trial_hyperparameters IS 'To search by; trials.hyperparameters has them whole.';
COMMENT ON COLUMN trial_hyperparameters.name IS 'With dots for a nested one; its first 256 characters.';
COMMENT ON COLUMN trial_hyperparameters.number IS 'Null: the value is no number.';
COMMENT ON COLUMN trial_hyperparameters.text IS 'The value; its first 200 characters.';
CREATE INDEX trial_hyperparameters_number ON trial_hyperparameters (name, number);
CREATE INDEX trial_hyperparameters_text ON trial_hyperparameters (name, text);

CREATE FUNCTION flat_hyperparameters(given jsonb) RETURNS TABLE (name text, number double precision, text text)
LANGUAGE sql IMMUTABLE AS $$
    WITH RECURSIVE flat(name, value) AS (
        SELECT key, value FROM jsonb_each(given)
        UNION ALL
        SELECT flat.name || '.' || inner_.key, inner_.value
        FROM flat, jsonb_each(CASE WHEN jsonb_typeof(flat.value) = 'object' THEN flat.value ELSE '{}' END) AS inner_)
    SELECT left(flat.name, 256), CASE WHEN jsonb_typeof(value) = 'number' THEN (value #>> '{}')::double precision END,
        left(coalesce(value #>> '{}', 'null'), 200)
    FROM flat WHERE jsonb_typeof(value) <> 'object'
$$;

INSERT INTO trial_hyperparameters
SELECT t.experiment_id, t.trial_number, h.* FROM trials t, flat_hyperparameters(t.hyperparameters::jsonb) h
ON CONFLICT DO NOTHING;

CREATE INDEX allocations_granted ON allocations (granted_us, allocation_id);
CREATE INDEX experiments_user ON experiments (user_name, experiment_id);
CREATE INDEX experiments_state ON experiments (state, experiment_id);
CREATE INDEX experiments_name ON experiments (lower(name), experiment_id);
CREATE INDEX experiments_submitted ON experiments (submitted_us);
CREATE INDEX experiments_smallest ON experiments (coalesce(best_metric, 'Infinity'), experiment_id);
CREATE INDEX experiments_largest ON experiments (coalesce(best_metric, '-Infinity'), experiment_id);
CREATE INDEX experiments_ended ON experiments (coalesce(ended_us, 9223372036854775807), experiment_id);
CREATE INDEX experiments_labels ON experiments USING gin (labels);
