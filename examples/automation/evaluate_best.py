"""When an experiment completes: fetch its best checkpoint, evaluate it, and post the result.

tenuto automation run evaluate_best.py, with RESULTS_URL set to where results go.
"""

import os
import tempfile
from pathlib import Path

import httpx
import safetensors.numpy

from tenuto import automation
from tenuto.schemas.events.search import ExperimentCompleted

app = automation.App("evaluate-best")


def evaluate(directory: Path) -> float:
    """Yours: here the distance from the line that the model should have found."""
    slope = safetensors.numpy.load_file(directory / "model.safetensors")["slope"]
    return abs(float(slope[0]) - 3.0)


@app.on(ExperimentCompleted, labels=["nightly"])
async def post_result(event: automation.Event[ExperimentCompleted], cluster: automation.AsyncClient) -> None:
    assert event.experiment_id is not None
    experiment = await cluster.get_experiment(event.experiment_id)
    checkpoint = await experiment.best_checkpoint()
    with tempfile.TemporaryDirectory() as directory:
        files = await checkpoint.download(Path(directory) / "best")
        distance = evaluate(files)
    result = {"experiment": experiment.id, "checkpoint": checkpoint.id, "distance": distance}
    async with httpx.AsyncClient() as http:
        # The receiver knows the event's id again where the same result comes twice.
        answer = await http.post(os.environ["RESULTS_URL"], json=result, headers={"Idempotency-Key": event.id})
        answer.raise_for_status()
    print(f"experiment {experiment.id}: {distance:.4f} from the line")
