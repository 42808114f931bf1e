"""Its first run meets a broken machine: it says so as CUDA does, and fails."""

from pathlib import Path

import tenuto

with tenuto.init() as run:
    marker = Path(run.hyperparameters["marker"])
    if not marker.exists():
        marker.touch()
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    for operation in run.operations():
        run.report_validation(operation.steps, {"accuracy": 1.0})
