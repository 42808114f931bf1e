"""A Kubeflow pipeline that trains: python kubeflow_pipeline.py writes training.yaml, to be uploaded.

The secret `tenuto` has the key `token`. A step that Kubeflow runs again waits for the same experiment: its key is the run's.
"""

from kfp import compiler, dsl, kubernetes


@dsl.component(base_image="python:3.11", packages_to_install=["tenuto"])
def train(url: str, run: str, model_archive: str) -> float:
    """`model_archive`: address of a tar archive with config.yaml and the model's code."""
    import os
    import tarfile
    import urllib.request

    from tenuto import Client

    urllib.request.urlretrieve(model_archive, "/tmp/model.tar")
    with tarfile.open("/tmp/model.tar") as archive:
        archive.extractall("/tmp/model", filter="data")
    client = Client(url, os.environ["TENUTO_TOKEN"])
    experiment = client.create_experiment("/tmp/model/config.yaml", "/tmp/model", idempotency_key=f"kubeflow-{run}")
    experiment.wait(timeout_seconds=24 * 3600)  # raises where it did not complete: then the step fails
    return experiment.best_trial().best_metric


@dsl.pipeline(name="training")
def training(url: str, model_archive: str) -> float:
    step = train(url=url, run=dsl.PIPELINE_JOB_ID_PLACEHOLDER, model_archive=model_archive)
    step.set_retry(num_retries=2)
    step.set_caching_options(False)
    kubernetes.use_secret_as_env(step, secret_name="tenuto", secret_key_to_env={"token": "TENUTO_TOKEN"})
    return step.output


if __name__ == "__main__":
    compiler.Compiler().compile(training, "training.yaml")
