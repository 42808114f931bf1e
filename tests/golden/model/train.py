"""A trial that costs nothing and meets what trials meet: refused values, an error, a metric that is no number, checkpoints."""

import json
import os
import time

import tenuto

STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))

with tenuto.init() as run:
    x, steps = float(run.hyperparameters["x"]), 0
    if x > 0.97:
        raise tenuto.InvalidHyperparameters("x is too large")
    if x < 0.02:
        raise RuntimeError("x is too small for this code")
    if run.checkpoint.latest is not None:
        with run.checkpoint.restore() as directory:
            steps = json.loads((directory / "steps.json").read_text())
    for operation in run.operations():
        while steps < operation.steps and not run.should_preempt():
            time.sleep(STEP_SECONDS)
            steps += 1
        with run.checkpoint.save(steps) as directory:
            (directory / "steps.json").write_text(json.dumps(steps))
        if steps == operation.steps:
            loss = float("nan") if 0.5 < x < 0.56 else (x - 0.3) ** 2 + 1 / steps
            run.report_validation(steps, {"loss": loss, "size": x})
