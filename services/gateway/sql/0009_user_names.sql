-- From which experiment on a name is that of the user who has it now. Folded from the log by the projection `views`.

CREATE TABLE user_names (
    name             text   PRIMARY KEY,
    first_experiment bigint NOT NULL
);
COMMENT ON COLUMN user_names.first_experiment IS 'Those before it were submitted by somebody who had the name earlier.';

INSERT INTO user_names
WITH told AS MATERIALIZED (
    SELECT position, type, CASE WHEN type = 'UserCreated' THEN convert_from(payload, 'UTF8')::jsonb ->> 'name' END AS name
    FROM events WHERE type IN ('UserCreated', 'ExperimentSubmitted')
        AND position <= (SELECT position FROM projection_cursors WHERE projection = 'views'))
SELECT made.name, 1 + (SELECT count(*) FROM told WHERE type = 'ExperimentSubmitted' AND position < made.position)
FROM (SELECT name, max(position) AS position FROM told WHERE type = 'UserCreated' GROUP BY name) AS made;
