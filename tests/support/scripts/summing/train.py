"""A script whose training adds the numbers of its steps: any lost, doubled or wrongly resumed step shows in the sum."""

import os
import signal
import sys
import time
from pathlib import Path

import tenuto

EPOCH_STEPS = 10


def hold(run: tenuto.Run, steps: int) -> None:
    """Waits where the test says until it lets go, or until the run is told to leave."""
    if str(steps) == os.environ.get("TEST_HOLD_AT"):
        go = Path(os.environ["TEST_HOLD_FILE"])
        go.with_suffix(".held").touch()
        while not go.exists() and not run.should_preempt():
            time.sleep(0.005)


def main() -> None:
    with tenuto.init() as run:
        # As if the run had these variables, for which it would need another warm process than runs without them.
        os.environ.update(run.hyperparameters.get("variables", {}))
        run.epoch_batches = EPOCH_STEPS
        steps, total = 0, 0
        if run.checkpoint.latest is not None:
            with run.checkpoint.restore() as directory:
                total = int((directory / "sum.txt").read_text())
            steps = run.checkpoint.latest.metadata["steps"]
        factor = run.hyperparameters.get("factor", 1)

        def save() -> None:
            with run.checkpoint.save(steps, {"steps": steps}) as directory:
                (directory / "sum.txt").write_text(str(total))

        for operation in run.operations():
            while steps < operation.steps and not run.should_preempt():
                total += factor * steps
                steps += 1
                hold(run, steps)
                if str(steps) == os.environ.get("TEST_KILL_AT"):
                    os.kill(os.getpid(), signal.SIGKILL)
                if str(steps) == os.environ.get("TEST_RAISE_AT"):
                    raise ValueError("the sum is odd")
                if run.should_report(steps):
                    run.report_training(steps, {"sum": total})
                if run.should_save(steps) and steps < operation.steps:
                    save()
                if run.should_validate(steps) and steps < operation.steps:
                    run.report_validation(steps, {"total": total})
            save()
            if steps == operation.steps:
                run.report_validation(steps, {os.environ.get("TEST_METRIC", "total"): total})
        run.alert("done", f"sum {total}, arguments {sys.argv[1:]}", "warning")


if __name__ == "__main__":
    main()
