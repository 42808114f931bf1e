"""Four steps with a checkpoint after each. At the first start it waits after the second one, until its machine is lost."""

import json
import time

import tenuto

with tenuto.init() as run:
    steps, restored = 0, run.checkpoint.latest is not None
    if restored:
        with run.checkpoint.restore() as directory:
            steps = json.loads((directory / "steps.json").read_text())
        print("goes on at step", steps)
    for operation in run.operations():
        while steps < operation.steps:
            steps += 1
            with run.checkpoint.save(steps) as directory:
                (directory / "steps.json").write_text(json.dumps(steps))
            while steps == 2 and not restored:
                time.sleep(0.1)
        run.report_validation(steps, {"loss": 1.0 / steps})
