"""A DAG that trains every night. TENUTO_URL and TENUTO_TOKEN are in the worker's environment, with the package `tenuto`.

A task that Airflow runs again waits for the same experiment: its Idempotency-Key is made of DAG, task and run. What failed is not
tried again, as it would be the same experiment; a task whose time is over, or that lost the cluster, is.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

MODEL_DIR = "/opt/airflow/dags/model"


@task(retries=3, retry_delay=timedelta(minutes=1), execution_timeout=timedelta(hours=13))
def train() -> dict[str, object]:
    from tenuto import Client
    from tenuto.client import NotCompleted

    instance = get_current_context()["ti"]
    key = f"airflow-{instance.dag_id}-{instance.task_id}-{instance.run_id}"
    experiment = Client().create_experiment(f"{MODEL_DIR}/config.yaml", MODEL_DIR, idempotency_key=key)
    try:
        experiment.wait(timeout_seconds=12 * 3600)  # TimedOut: the experiment goes on, and the next attempt waits for it again
    except NotCompleted as error:
        raise AirflowFailException(str(error)) from error
    best = experiment.best_trial()
    return {"experiment": experiment.id, "trial": best.id, "metric": best.best_metric}


@task
def announce(result: dict[str, object]) -> None:
    print(f"experiment {result['experiment']}: {result['metric']}")


@dag(schedule="@daily", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def nightly_training() -> None:
    announce(train())


nightly_training()
