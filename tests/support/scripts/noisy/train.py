"""A script whose steps cost nothing, and which validates and saves at every one: as fast as it is let."""

import tenuto


def main() -> None:
    with tenuto.init() as run:
        run.epoch_batches = 1
        steps = 0
        for operation in run.operations():
            while steps < operation.steps and not run.should_preempt():
                steps += 1
                run.report_validation(steps, {"total": steps})
                if steps % 100 == 0:
                    with run.checkpoint.save(steps) as directory:
                        (directory / "steps.txt").write_text(str(steps))


if __name__ == "__main__":
    main()
