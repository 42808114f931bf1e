"""Three steps, with a checkpoint when it has to leave. It waits before the last one for the file `gate`, if it is given one."""

import json
import os
import time
from pathlib import Path

import tenuto

print("of a batch job:", sorted(name for name in os.environ if name.startswith(("SLURM", "PMI", "OMPI"))))
with tenuto.init() as run:
    steps, gate = 0, str(run.hyperparameters["gate"])
    if run.checkpoint.latest is not None:
        with run.checkpoint.restore() as directory:
            steps = json.loads((directory / "steps.json").read_text())
        print("goes on at step", steps)
    for operation in run.operations():
        while steps < operation.steps and not run.should_preempt():
            if gate and steps == 2 and not Path(gate).exists():
                time.sleep(0.05)
                continue
            steps += 1
            if gate and steps == 2:
                with run.checkpoint.save(steps) as directory:
                    (directory / "steps.json").write_text(json.dumps(steps))
        if run.should_preempt():
            with run.checkpoint.save(steps) as directory:
                (directory / "steps.json").write_text(json.dumps(steps))
            break
        run.report_validation(steps, {"loss": 1.0 / steps})
