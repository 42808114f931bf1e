"""Another user's trial: it trains for as long as it is let, and holds what an attacker wants."""

import time

import tenuto

with tenuto.init() as run:
    for operation in run.operations():
        steps = 0
        while steps < operation.steps and not run.should_preempt():
            steps += 1
            time.sleep(0.2)
            run.report_training(steps, {"loss": 1.0})
        run.report_validation(steps, {"loss": 1.0})
