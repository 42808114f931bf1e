"""Trains nothing, at once: its loss falls by steps and differs by rate. A worker of it starts without torch."""

import tenuto

with tenuto.init() as run:
    steps, rate = 0, run.hyperparameters["rate"]
    if run.checkpoint.latest is not None:
        with run.checkpoint.restore() as directory:
            steps = int((directory / "steps").read_text())
    for operation in run.operations():
        while steps < operation.steps:
            steps += 1
            run.report_training(steps, {"loss": rate / steps})
        with run.checkpoint.save(steps) as directory:
            (directory / "steps").write_text(str(steps))
        run.report_validation(steps, {"loss": rate / steps, "size": 1 / rate})
