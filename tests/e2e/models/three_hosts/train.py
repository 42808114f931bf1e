"""Three ranks that step together, each with its part of a checkpoint. The first two runs wait until a machine is lost."""

import json
import time

import tenuto

HELD_AT = {0: 10, 10: 20}
"""Step of the checkpoint that a run begins with -> step that it does not go beyond."""

with tenuto.init() as run:
    step = run.checkpoint.latest.steps if run.checkpoint.latest is not None else 0
    if step:
        with run.checkpoint.restore() as directory:
            part = json.loads((directory / f"part-{run.rank}.json").read_text())
        assert part == {"rank": run.rank, "step": step}
    print(f"rank {run.rank} of {run.slots} begins at {step}", flush=True)
    held_at = HELD_AT.get(step, 10**9)
    for operation in run.operations():
        while step < operation.steps:
            time.sleep(0.05)
            if run.should_preempt():  # all ranks together, over the network
                raise SystemExit("nobody asks for the slots")
            if step == held_at:
                continue
            step += 1
            if step % 10 == 0:
                with run.checkpoint.save(step, shard=True) as directory:
                    (directory / f"part-{run.rank}.json").write_text(json.dumps({"rank": run.rank, "step": step}))
        if run.rank == 0:
            run.report_validation(step, {"loss": 1.0 / step})
