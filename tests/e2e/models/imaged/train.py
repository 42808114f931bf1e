"""Tells in which image it runs: each has a package of this name, and none has Tenuto. Then it waits for the file `gate`."""

import sys
import time
from pathlib import Path

import of_the_image

import tenuto

print("trained in", of_the_image.NAME, "with", of_the_image.__file__, "by", sys.executable)
with tenuto.init() as run:
    for operation in run.operations():
        while not Path(str(run.hyperparameters["gate"])).exists():
            time.sleep(0.05)
        run.report_validation(operation.steps, {"loss": 1.0})
