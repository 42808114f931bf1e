"""Ends an experiment at once when the loss of one of its trials explodes.

tenuto automation run stop_exploding.py
"""

import math

from tenuto import automation
from tenuto.schemas.events.trial import ValidationReported

app = automation.App("stop-exploding")
LOSS_MAX = 1e6


@app.on(ValidationReported)
async def kill(event: automation.Event[ValidationReported], cluster: automation.AsyncClient) -> None:
    loss = event.data.metrics.get("loss", 0.0)
    if event.experiment_id is None or (math.isfinite(loss) and loss < LOSS_MAX):
        return
    experiment = await cluster.get_experiment(event.experiment_id)
    await experiment.kill()
    print(f"experiment {experiment.id} is killed: loss {loss} of trial {event.trial_id}")
