"""A script of which every second trial ends itself, after a validation."""

import tenuto

with tenuto.init() as run:
    number = int(run.trial_id.split("-")[1])
    done = run.checkpoint.latest.steps if run.checkpoint.latest else 0
    for operation in run.operations():
        for step in range(done + 1, operation.steps + 1):
            run.report_training(step, {"training loss": 1.0})
            if step in (1, operation.steps):
                with run.checkpoint.save(step) as directory:
                    (directory / "step.txt").write_text(str(step))
                run.report_validation(step, {"loss": number / step})
            if number % 2 and step == 3:
                run.end_training(f"trial {number} has had enough")
                break
        done = operation.steps
