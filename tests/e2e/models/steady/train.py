"""Steps at a steady pace, each with a line and a metric; a checkpoint and a validation every twenty. It needs no framework."""

import time

import tenuto

STEP_SECONDS = 0.05
STEPS_BETWEEN = 20

with tenuto.init() as run:
    steps, rate = 0, float(run.hyperparameters["rate"])
    if run.checkpoint.latest is not None:
        with run.checkpoint.restore() as directory:
            steps = int((directory / "steps").read_text())
    for operation in run.operations():
        while steps < operation.steps:
            time.sleep(STEP_SECONDS)
            steps += 1
            print(f"step {steps}.", flush=True)
            run.report_training(steps, {"loss": rate / steps})
            leaves = run.should_preempt()
            if leaves or steps % STEPS_BETWEEN == 0 or steps == operation.steps:
                with run.checkpoint.save(steps) as directory:
                    (directory / "steps").write_text(str(steps))
            if leaves:
                break
            if steps % STEPS_BETWEEN == 0 and steps < operation.steps:
                run.report_validation(steps, {"loss": rate / steps})
        if run.should_preempt():
            break
        run.report_validation(steps, {"loss": rate / steps})
