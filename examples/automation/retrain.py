"""Trains again when the data have changed.

A nightly job (cron, CI) runs `tenuto exp fork PROBE`, whose trial only declares the data: `tenuto.data("/mnt/data/train")`.
Where their fingerprint is not what it was, the experiment whose id is in RETRAIN is forked.

tenuto automation run retrain.py
"""

import os

from tenuto import automation
from tenuto.schemas.events.trial import DataRecorded

app = automation.App("retrain")


@app.on(DataRecorded, labels=["probe"])
async def retrain(event: automation.Event[DataRecorded], cluster: automation.AsyncClient) -> None:
    if event.data.changed_from is None:
        return
    experiment = await cluster.get_experiment(int(os.environ["RETRAIN"]))
    again = await experiment.fork({"name": "retrained"})
    print(f"experiment {again.id} trains with the new {event.data.data.name}")
