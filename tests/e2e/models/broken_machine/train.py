"""A script whose first run fails with an error of CUDA, as on a broken machine."""

from pathlib import Path

import tenuto

with tenuto.init() as run:
    marker = Path(run.hyperparameters["marker"])
    if not marker.exists():
        marker.touch()
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    for operation in run.operations():
        run.report_validation(operation.steps, {"accuracy": 1.0})
