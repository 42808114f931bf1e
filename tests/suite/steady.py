"""Runs the whole suite several times, and says which tests are unsteady and where the time goes.

    python -m tests.suite.steady --runs 5 --load 4 -- -n 3 --dist loadfile

Every second run has computing processes beside it, and each has a seed of its own. What was measured is kept in `.steady/`: a
measurement that was stopped goes on with the run that was not finished, and `--fresh` begins anew.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tests.suite import child, machine, ruler, second_look
from tests.suite.outcomes import Run, Verdict
from tests.suite.ruler import Measured
from tests.support import litter

DIRECTORY = Path(".steady")
RESULT = "result.json"


def main(words: Sequence[str]) -> int:
    """0 if no run had a failed or an unsteady test, or left anything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="how often the suite runs")
    parser.add_argument("--load", type=int, default=4, metavar="N", help="processes that compute beside every second run")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the first run; the others follow")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("arguments", nargs="*", help="arguments for pytest, after --")
    options = parser.parse_args(words)
    if options.fresh:
        shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(exist_ok=True)
    child.hear_sigterm()
    known = {one.number: one for one, _ in kept()}
    for number in range(options.runs):
        seed, load = options.seed + number, options.load if number % 2 else 0
        if number in known:
            _tell_kept(known[number], known[number].otherwise(seed, load, _commit(), tuple(options.arguments)))
            continue
        try:
            measure(number, seed, load, options.arguments)
        except (KeyboardInterrupt, child.Terminated) as stop:
            print(f"run {number} was stopped; the same command begins with it again", flush=True)
            return 128 + (signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM)
    runs = kept()
    text = ruler.table(runs)
    (DIRECTORY / "table.txt").write_text(text, encoding="utf-8")
    print(text, end="")
    return int(any(one.status or one.unsteady or one.failed or one.left for one, _ in runs))


def _tell_kept(run: Measured, otherwise: str) -> None:
    print(f"run {run.number} is kept" + (f", with {otherwise} (--fresh begins anew)" if otherwise else ""), flush=True)


def measure(number: int, seed: int, load: int, arguments: Sequence[str]) -> None:
    """One run; its result is there only if it came to its end. Raises KeyboardInterrupt, also if only pytest got that, and
    Terminated."""
    directory = DIRECTORY / f"run-{number}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    began, start, before = datetime.now(UTC).isoformat(), time.monotonic(), litter.snapshot()
    print(f"run {number}: seed {seed}, {load or 'no'} processes beside it; {directory / 'log.txt'}", flush=True)
    command = [sys.executable, "-m", second_look.__name__, "-p", "randomly", f"--randomly-seed={seed}", *arguments]
    with machine.computing(load), machine.measured() as use, (directory / "log.txt").open("w") as log:
        status = child.run(command, stdout=log, stderr=subprocess.STDOUT)
    for record in second_look.DIRECTORY.iterdir():
        shutil.copy(record, directory)
    first = second_look.read(directory / second_look.FIRST)
    # With `-x` and several processes pytest ends with the same status at a test that failed.
    if status == second_look.INTERRUPTED and not first.collection_errors and not first.failed:
        raise KeyboardInterrupt
    found = seen(directory)
    result = Measured(
        number, seed, load, _commit(), began, time.monotonic() - start, status, tuple(found.unsteady), tuple(found.failed),
        use.idle_share, use.memory_bytes_max, tuple(litter.left_behind(before)), tuple(arguments),
    )  # fmt: skip
    (directory / RESULT).write_text(json.dumps(asdict(result)))
    counts = f"{len(found.unsteady)} unsteady, {len(found.failed)} failed"
    print(f"run {number}: exit {status} after {result.seconds / 60:.1f} min, {counts}", flush=True)


def seen(directory: Path) -> Verdict:
    """What the second look found; without one, what failed has failed."""
    path = directory / second_look.VERDICT
    if path.exists():
        said = json.loads(path.read_text())
        return Verdict(said["unsteady"], said["failed"])
    return Verdict((), [test.id for test in second_look.read(directory / second_look.FIRST).failed])


def kept() -> list[tuple[Measured, Run]]:
    """All runs that are kept, also those of measurements before with more of them."""
    runs = []
    for path in sorted(DIRECTORY.glob(f"run-*/{RESULT}")):
        fields = json.loads(path.read_text())
        for name in ("unsteady", "failed", "left", "arguments"):
            fields[name] = tuple(fields.get(name, ()))
        runs.append((Measured(**fields), second_look.read(path.with_name(second_look.FIRST))))
    return sorted(runs, key=lambda pair: pair[0].number)


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
