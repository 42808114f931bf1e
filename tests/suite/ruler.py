"""What several runs of the suite say together: which tests are unsteady, and where the time goes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tests.suite.outcomes import Run

SLOWEST = 30
"""Phases of tests that are shown."""
LINE_CHARACTERS_MAX = 160


@dataclass(frozen=True)
class Measured:
    """One run, as it is kept."""

    number: int
    seed: int
    load: int
    """Processes that computed beside it."""
    commit: str
    began: str
    """Time in UTC, ISO 8601."""
    seconds: float
    status: int
    """Exit status of the run with its second look. 0: it passes."""
    unsteady: tuple[str, ...]
    failed: tuple[str, ...]
    idle_share: float
    memory_bytes_max: int
    left: tuple[str, ...]
    """Files and processes that it left behind."""
    arguments: tuple[str, ...] = ()
    """Of pytest; empty in what earlier versions kept."""

    def otherwise(self, seed: int, load: int, commit: str, arguments: tuple[str, ...]) -> str:
        """How a run with these would be another one; empty if it would not."""
        known = {"seed": self.seed, "load": self.load, "commit": self.commit[:8], "arguments": " ".join(self.arguments)}
        wanted = {"seed": seed, "load": load, "commit": commit[:8], "arguments": " ".join(arguments)}
        return ", ".join(f"{name} {known[name] or 'unknown'}" for name in known if known[name] != wanted[name])


def table(runs: Sequence[tuple[Measured, Run]]) -> str:
    """All that is printed of these runs."""
    return "\n".join([*_runs(runs), "", *_unsteady(runs), "", *_slowest(runs), "", *_left(runs)]) + "\n"


def _runs(runs: Sequence[tuple[Measured, Run]]) -> list[str]:
    lines = ["run      seed  load  commit    began (UTC)          minutes  passed  unsteady  failed  skipped  idle  memory  left"]
    for measured, run in runs:
        exit_status = "" if measured.status == 0 else f"  exit {measured.status}"
        lines.append(
            f"{measured.number:3} {measured.seed:10} {measured.load:4}  {measured.commit[:8]:8}  {measured.began[:19]:19}  "
            f"{measured.seconds / 60:7.1f} {run.count('passed'):7} {len(measured.unsteady):9} {len(measured.failed):7} "
            f"{run.count('skipped'):8} {measured.idle_share:5.0%} {measured.memory_bytes_max / 1e9:4.1f} GB "
            f"{len(measured.left):5}{exit_status}"
        )
    return lines


def _unsteady(runs: Sequence[tuple[Measured, Run]]) -> list[str]:
    """By rate; a test that failed every look counts as well."""
    times: dict[str, int] = defaultdict(int)
    words: dict[str, str] = {}
    kinds: dict[str, set[str]] = defaultdict(set)
    for measured, run in runs:
        for kind, names in (("unsteady", measured.unsteady), ("failed", measured.failed)):
            for name in names:
                times[name] += 1
                kinds[name].add(kind)
                words.setdefault(name, first_line(run.tests[name].failures if name in run.tests else ()))
    if not times:
        return [f"No test was unsteady in {len(runs)} runs."]
    ordered = sorted(times, key=lambda name: (-times[name], name))
    lines = ["Unsteady and failed tests, by rate:"]
    for name in ordered:
        lines += [f"  {times[name]}/{len(runs)} {'+'.join(sorted(kinds[name]))}  {name}", f"      {words[name]}"]
    return lines


def first_line(failures: Sequence[str]) -> str:
    """The line that says what went wrong: pytest's first line of an error, or the last line that there is."""
    for text in failures:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("E ")]
        chosen = (errors or lines[-1:] or [""])[0]
        return chosen.removeprefix("E ").strip()[:LINE_CHARACTERS_MAX]
    return ""


def _slowest(runs: Sequence[tuple[Measured, Run]]) -> list[str]:
    """Phases by their mean over the runs in which they were run: a setup is what its fixtures cost."""
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _, run in runs:
        for test in run.tests.values():
            for when, taken in test.seconds.items():
                seconds[test.id, when].append(taken)
    means = {key: sum(values) / len(values) for key, values in seconds.items()}
    ordered = sorted(means, key=lambda key: -means[key])[:SLOWEST]
    whole = sum(means.values())
    lines = [f"Slowest of {len(means)} phases, which take {whole:.0f} s together (mean over runs; seconds, phase, test):"]
    return lines + [f"  {means[name, when]:6.1f} {when:8} {name}" for name, when in ordered]


def _left(runs: Sequence[tuple[Measured, Run]]) -> list[str]:
    found = [f"  run {measured.number}: {what}" for measured, _ in runs for what in measured.left]
    return ["Left behind:", *found] if found else ["Nothing was left behind."]
