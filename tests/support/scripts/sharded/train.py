"""Each rank has a number of its own, and a table that never changes; a checkpoint holds those of all."""

import json
import os
import sys

import tenuto


def main() -> None:
    with tenuto.init() as run:
        step, numbers = 0, [rank + 1 for rank in range(2)]
        if run.checkpoint.latest is not None:
            step = run.checkpoint.latest.steps
            with run.checkpoint.restore() as directory:
                print(f"rank {run.rank} fetched {sorted(path.name for path in directory.iterdir())}", file=sys.stderr)
                for rank in range(2):
                    if rank % run.slots == run.rank:
                        numbers[rank] = json.loads((directory / f"number-{rank}.json").read_text())
        mine = [rank for rank in range(2) if rank % run.slots == run.rank]

        def save() -> None:
            with run.checkpoint.save(step, {"by": run.rank}, shard=True) as directory:
                for rank in mine:
                    (directory / f"number-{rank}.json").write_text(json.dumps(numbers[rank]))
                    (directory / f"table-{rank}").write_bytes(bytes([rank]) * 100_000)
                name = "same" if os.environ.get("TEST_CLASH") != str(step) else f"same {run.rank}"
                (directory / "same").write_text(name)
                if os.environ.get("TEST_RAISE") == f"{run.rank} {step}":
                    raise OSError(5, "this rank cannot")

        for operation in run.operations():
            while step < operation.steps:
                step += 1
                for rank in mine:
                    numbers[rank] = (numbers[rank] * 31 + step) % 1_000_003
                if run.should_save(step) and step < operation.steps:
                    save()
                    run.checkpoint.wait()
                if os.environ.get("TEST_END") == str(step):
                    sys.exit(3)
            save()
            run.checkpoint.wait()
            with run.checkpoint.restore(all_ranks=True) as directory:
                everything = [json.loads((directory / f"number-{rank}.json").read_text()) for rank in range(2)]
            print(f"rank {run.rank} reads {everything}", file=sys.stderr)
            if run.rank == 0:
                run.report_validation(step, {"sum": sum(everything)})


if __name__ == "__main__":
    main()
