-- What the artifacts of unmanaged runs have together, by experiment and by user: counted where each is stored or deleted, so that
-- a limit costs no look at a million rows.

ALTER TABLE unmanaged_artifacts ADD COLUMN user_name text NOT NULL DEFAULT '';
COMMENT ON COLUMN unmanaged_artifacts.user_name IS 'User who started the run.';

UPDATE unmanaged_artifacts a SET user_name = t.run_user FROM trials t
WHERE t.experiment_id = a.experiment_id AND t.trial_number = a.trial_number;

CREATE TABLE unmanaged_artifact_totals (
    owner      text   NOT NULL PRIMARY KEY,
    files      bigint NOT NULL,
    size_bytes bigint NOT NULL
);
COMMENT ON COLUMN unmanaged_artifact_totals.owner IS 'Such as experiment/3 or user/ada.';

INSERT INTO unmanaged_artifact_totals
SELECT 'experiment/' || experiment_id, count(*), sum(size_bytes) FROM unmanaged_artifacts GROUP BY experiment_id
UNION ALL SELECT 'user/' || user_name, count(*), sum(size_bytes) FROM unmanaged_artifacts GROUP BY user_name;
