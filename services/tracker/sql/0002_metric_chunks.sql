-- Training metrics as columns of numbers: some thousand points of a trial in a row, in a tenth of the space of a row per point, and
-- with the extremes of buckets of them, from which pictures of any range are drawn. src/tenuto/kernel/metrics/packing.py describes the bytes.
CREATE TABLE trial_metric_chunks (
    experiment_id   bigint   NOT NULL,
    first_batches   bigint   NOT NULL,
    last_batches    bigint   NOT NULL,
    last_us         bigint   NOT NULL,
    write_number    bigint   NOT NULL,
    trial_number    integer  NOT NULL,
    points          integer  NOT NULL,
    wide            integer  NOT NULL,
    fine_count      integer  NOT NULL,
    coarse_count    integer  NOT NULL,
    fine_exponent   smallint NOT NULL,
    coarse_exponent smallint NOT NULL,
    names           text[]   NOT NULL,
    last_metrics    jsonb    NOT NULL,
    steps           bytea    NOT NULL,
    fine            bytea    NOT NULL,
    coarse          bytea    NOT NULL,
    numbers         bytea    NOT NULL,
    PRIMARY KEY (experiment_id, trial_number, first_batches)
) WITH (fillfactor = 50); -- the last row of a trial is written again and again
COMMENT ON TABLE trial_metric_chunks IS 'Training metrics. Chunks of a trial do not overlap; of a batch that was measured twice they have the newest measurement.';
COMMENT ON COLUMN trial_metric_chunks.write_number IS 'Of the last write that changed the row: who has seen that one asks for later ones.';
COMMENT ON COLUMN trial_metric_chunks.wide IS 'How many of the metrics, from the first on, have 8 bytes a value; the others have 4.';
COMMENT ON COLUMN trial_metric_chunks.fine_exponent IS 'Width of the buckets in batches, as a power of two; 63: there are none.';
COMMENT ON COLUMN trial_metric_chunks.last_metrics IS 'Metrics of the last point. NaN and infinities are strings.';
-- Parts of these are read by their place, which compression would forbid; nor would it gain much.
ALTER TABLE trial_metric_chunks ALTER COLUMN steps SET STORAGE EXTERNAL, ALTER COLUMN fine SET STORAGE EXTERNAL,
    ALTER COLUMN coarse SET STORAGE EXTERNAL, ALTER COLUMN numbers SET STORAGE EXTERNAL;

-- Number of the last write. Writers take turns at this row, so the numbers grow in the order of commits.
CREATE TABLE metric_writes (
    single_row  boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    last_number bigint  NOT NULL
);
INSERT INTO metric_writes (last_number) VALUES (1);

-- What was stored before: 1,024 points to a row, fewer where they have many metrics.
INSERT INTO trial_metric_chunks
WITH sized AS (
    SELECT *, (SELECT count(*) FROM jsonb_object_keys(metrics)) AS size FROM trial_metrics
), numbered AS MATERIALIZED (
    SELECT experiment_id, trial_number, batches, time_us, metrics,
        coalesce(substring(allocation_id FROM '[0-9]{1,9}$')::bigint, 0) AS run,
        (row_number() OVER (PARTITION BY experiment_id, trial_number ORDER BY batches) - 1)
            / least(1024, 262144 / (1 + max(size) OVER (PARTITION BY experiment_id, trial_number))) AS part
    FROM sized
), steps AS (
    SELECT experiment_id, trial_number, part, min(batches) AS first_batches, max(batches) AS last_batches, count(*) AS points,
        (array_agg(time_us ORDER BY batches DESC))[1] AS last_us, (array_agg(metrics ORDER BY batches DESC))[1] AS last_metrics,
        '\xff'::bytea || string_agg(int8send(batches), ''::bytea ORDER BY batches)
            || '\xff'::bytea || string_agg(int8send(time_us), ''::bytea ORDER BY batches)
            || '\xff'::bytea || string_agg(int8send(run), ''::bytea ORDER BY batches) AS steps
    FROM numbered GROUP BY experiment_id, trial_number, part
), names AS (
    SELECT DISTINCT experiment_id, trial_number, part, jsonb_object_keys(metrics) AS name FROM numbered
), numbers AS (
    SELECT experiment_id, trial_number, part, n.name,
        string_agg(coalesce(float8send((p.metrics ->> n.name)::float8), '\x7ff8000000000a5e'::bytea), ''::bytea ORDER BY p.batches)
            AS numbers
    FROM names n JOIN numbered p USING (experiment_id, trial_number, part) GROUP BY experiment_id, trial_number, part, n.name
), together AS (
    SELECT experiment_id, trial_number, part, array_agg(name ORDER BY name) AS names,
        string_agg(numbers, ''::bytea ORDER BY name) AS numbers
    FROM numbers GROUP BY experiment_id, trial_number, part
)
SELECT experiment_id, first_batches, last_batches, last_us, 1, trial_number, points, coalesce(cardinality(names), 0), 0, 0, 63, 63,
    coalesce(names, '{}'), last_metrics, steps, '', '', coalesce(numbers, '')
FROM steps LEFT JOIN together USING (experiment_id, trial_number, part);
DROP TABLE trial_metrics;
