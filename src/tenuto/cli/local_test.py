"""exp create --local --test: a few batches, a validation, a checkpoint and a resume, each in a fresh process and in a copy of the
model directory as a cluster would unpack it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.cli.errors import CliError
from tenuto.cli.exit_status import EXIT_NOT_COMPLETED
from tenuto.cli.say import say
from tenuto.kernel.scratch import scratch_directory
from tenuto.schemas.config import ExperimentConfig

if TYPE_CHECKING:
    from tenuto.schemas.reports import TrainingEndedReport, ValidationReport

PERIOD_BATCHES = 4
"""Batches between two checkpoints of the test, or two steps of the optimizer where these are more."""
WIDTH = 9
ATTRIBUTES_SHOWN_MAX = 5
"""Most attributes named as different: the cause is one of the first, or all follow from it."""


@dataclass
class Findings:
    problems: list[str] = field(default_factory=list)
    """Sentences about what would fail, or go wrong, in a cluster."""

    def good(self, text: str) -> None:
        say(f"{'ok':<{WIDTH}}{text}", flush=True)

    def note(self, text: str) -> None:
        say(f"{'note':<{WIDTH}}{text}", flush=True)

    def problem(self, text: str) -> None:
        first = text.partition("\n")[0]  # a traceback was shown already, by the process that failed
        self.problems.append(first)
        say(f"{'PROBLEM':<{WIDTH}}{first}", flush=True)


def rehearse_here(config: ExperimentConfig, directory: Path, variables: Mapping[str, str]) -> None:
    """Raises CliError if something would have failed."""
    from tenuto.workers.errors import UserError

    findings = Findings()
    with scratch_directory("test") as place:
        try:
            _Rehearsal(config, directory, place, variables, findings).run()
        except UserError as error:
            findings.problem(str(error))
    count = len(findings.problems)
    if count:
        things = "1 problem" if count == 1 else f"{count} problems"
        raise CliError(f"This experiment would not go well on a cluster: {things}, shown above.", EXIT_NOT_COMPLETED)
    say("Nothing was found that would fail on a cluster.")


class _Rehearsal:
    def __init__(
        self, config: ExperimentConfig, directory: Path, place: Path, variables: Mapping[str, str], findings: Findings
    ) -> None:
        # All checkpoints are kept, whatever the configuration says: they are compared.
        self.config = config.model_copy(update={"checkpoint_policy": "all", "checkpoint_period_minutes": None})
        self.directory, self.place, self.variables, self.findings = directory, place, variables, findings
        self.model, self.first, self.second = place / "model", place / "first", place / "second"
        self.named: set[str] = set()
        """Breaks of exactness that were shown."""
        self.period = max(PERIOD_BATCHES, 2 * config.optimizations.aggregation_frequency)

    def run(self) -> None:
        from tenuto.local import begin
        from tenuto.schemas.config.entrypoint import script_of
        from tenuto.workers.local.running import differences

        for sentence in differences(self.config):
            self.findings.note(sentence)
        if not self._unpack():
            return
        begin(self.config, self.first, command=["tenuto"])
        if (error := self._part(self.first, "first", leave_at=0)) is not None:
            self.findings.problem(error)
            return
        self._judge_validation()
        ended = self._judge_early_end()
        saved = self._judge_checkpoints()
        if len(saved) < 2 and not (saved and ended and saved[0].batches <= self.period):
            if saved and saved[0].batches > 0:
                self.findings.problem(
                    f"the only checkpoint is that of batch {saved[0].batches}: save where run.should_save(steps) is true, else "
                    "an interruption loses all that was trained."
                )
            return
        self._copy_up_to(saved[0].checkpoint_id)
        script = script_of(self.config.entrypoint) is not None
        leave_at = 0 if script or len(saved) < 2 else saved[1].batches
        if (error := self._part(self.second, "second", leave_at=leave_at)) is not None:
            self.findings.problem(f"it does not resume from its checkpoint: {error}")
        elif len(saved) < 2:  # it ended before the next one was due: there is no later position to compare
            self.findings.good(f"resumed at batch {saved[0].batches} in a fresh process, without an error")
        elif script:
            self._compare_metrics(saved[0].batches)
        else:
            self._compare_weights(saved[0].batches, saved[1].batches)

    def _unpack(self) -> bool:
        from tenuto.client.errors import ClientError
        from tenuto.client.packing import pack
        from tenuto.kernel.archives import extract_all
        from tenuto.kernel.settings import Settings

        with tempfile.TemporaryFile() as archive:
            try:
                packed = pack(self.directory, archive, Settings.from_environment().context_bytes_max)
            except ClientError as error:
                self.findings.problem(str(error))
                return False
            archive.seek(0)
            with tarfile.open(fileobj=archive, mode="r:gz") as files:
                extract_all(files, self.model)
        size = f"{packed.size_bytes / 1e3:.1f} kB"
        self.findings.good(f"configuration and model directory ({packed.files} files, {size}), unpacked in {self.model}")
        return True

    def _part(self, record: Path, name: str, *, leave_at: int) -> str | None:
        """Runs a part in a fresh process. Returns what went wrong. Raises CliError if it was interrupted."""
        from tenuto.workers.local.rehearsal import Result

        result = self.place / f"{name}.json"
        arguments = [record, self.model, result, self.period, leave_at]
        command = [sys.executable, "-P", "-m", "tenuto.workers.local.rehearsal", *map(str, arguments)]
        sys.stdout.flush()
        try:
            code = subprocess.run(command, env={**os.environ, **self.variables}, check=False).returncode
        except KeyboardInterrupt:
            raise CliError("The test was interrupted.", 130) from None
        if result.exists():
            return Result.from_json(result.read_bytes()).error or None
        return f"the process ended by itself with status {code}: its code, or a library of it, ends the whole process."

    def _judge_validation(self) -> None:
        from tenuto.workers.errors import metric_warning
        from tenuto.workers.local.terminal import shown

        found = _validations(self.first)
        if not found and _ended_alone(self.first):
            self.findings.note(
                "it calls no API: its trial is complete when it ends, and no metric and no checkpoint is recorded."
            )
            return
        if not found:
            self.findings.problem("it never validates: the search waits for its metric.")
            return
        last = found[-1]
        warning = metric_warning(self.config.searcher.metric, last.metrics, last.batches)
        if warning:
            self.findings.problem(warning)
        else:
            self.findings.good(f"trains {last.batches} batches and validates: {shown(last.metrics)}")

    def _judge_early_end(self) -> bool:
        """True if the trial's own code ended its training before the length of the test."""
        ended = _ended(self.first)
        if ended is None or not ended.batches:
            return False
        why = f" ({ended.said})" if ended.said else ""
        self.findings.note(
            f"its own code ended the training at batch {ended.batches}{why}: on a cluster the trial is completed there, and its "
            "last validation counts."
        )
        return True

    def _judge_checkpoints(self) -> list[Any]:
        """Reports of the checkpoints by position, one each."""
        from tenuto.workers.core_api.local_record import checkpoints_of

        saved = list({report.batches: report for report in reversed(checkpoints_of(self.first))}.values())[::-1]
        if not saved and _ended_alone(self.first):
            self.findings.note("it saves no checkpoint: after any interruption it begins again.")
            return []
        if not saved:
            self.findings.problem("it saves no checkpoint: after any interruption the trial begins again.")
            return []
        largest = max(saved, key=lambda report: len(report.files))
        self.findings.good(f"saves a checkpoint ({len(largest.files)} files, {largest.size_bytes / 1e6:.1f} MB)")
        self._name_breaks(saved)
        return saved

    def _name_breaks(self, saved: list[Any]) -> None:
        for sentence in dict.fromkeys(sentence for report in saved for sentence in report.breaks):
            if sentence not in self.named:
                self.named.add(sentence)
                self.findings.problem(f"a resumed trial would differ: {sentence}")

    def _copy_up_to(self, checkpoint_id: str) -> None:
        """Makes the second record: the first one, as if its process had been killed after that checkpoint."""
        from tenuto.schemas.reports import CheckpointReport
        from tenuto.workers.core_api.local_record import REPORTS_FILE, RUN_FILE, ReportLine

        self.second.mkdir()
        shutil.copyfile(self.first / RUN_FILE, self.second / RUN_FILE)
        shutil.copytree(self.first / "checkpoints", self.second / "checkpoints")
        with (self.first / REPORTS_FILE).open("rb") as lines, (self.second / REPORTS_FILE).open("wb") as kept:
            for line in lines:
                kept.write(line)
                body = ReportLine.from_json(line).body
                if isinstance(body, CheckpointReport) and body.checkpoint_id == checkpoint_id:
                    return

    def _compare_weights(self, resumed_at: int, batches: int) -> None:
        """Compares the weights of the resumed trial with those of the one that was left alone, at the same position."""
        from tenuto.workers.core_api.local_record import checkpoints_of

        if not self.named:  # else what the resumed part noticed follows from what was said
            self._name_breaks(checkpoints_of(self.second))
        left, right = (_weights(record, batches) for record in (self.first, self.second))
        resumed = f"resumed at batch {resumed_at} in a fresh process, at batch {batches}"
        if left == right:
            self.findings.good(f"{resumed} it has the weights of the one that went on, bit for bit")
        elif not self.config.reproducibility.exact:
            self.findings.note(f"{resumed} its weights differ, as reproducibility.exact is false")
        else:
            self.findings.problem(
                f"{resumed} its weights are not those of the trial that went on: something that training uses is neither saved "
                f"nor drawn from the seed (the clock, an order of files, a global object){self._suspects(batches)}."
            )

    def _suspects(self, batches: int) -> str:
        """Attributes that may be the cause: those that came out different, and those that no checkpoint looks into."""
        from tenuto.kernel.storage import checkpoints
        from tenuto.workers.checkpoints.exactness import not_searched_in
        from tenuto.workers.core_api.local_record import checkpoints_of, store_of

        left, right = self.place / "left", self.place / "right"
        for record, target in ((self.first, left), (self.second, right)):
            report = next(item for item in checkpoints_of(record) if item.batches == batches)
            store = store_of(record)
            checkpoints.load(store, checkpoints.read_manifest(store, report.checkpoint_id), target)
        parts = []
        if different := _different_attributes(left, right):
            parts.append(f"different by then: {', '.join(different)}")
        if unknown := not_searched_in(left):
            parts.append(f"not looked into: {', '.join(unknown)}")
        return "; " + "; ".join(parts) if parts else ""

    def _compare_metrics(self, resumed_at: int) -> None:
        """Compares the last validation: what else a script's checkpoint holds, such as a time, is its own."""
        from tenuto.workers.local.terminal import shown

        left, right = (_validations(record)[-1:] for record in (self.first, self.second))
        resumed = f"resumed at batch {resumed_at} in a fresh process,"
        if not left or not right:
            return
        if repr(left[0].metrics) == repr(right[0].metrics):  # NaN is NaN
            self.findings.good(f"{resumed} at batch {right[0].batches} it has the metrics of the one that went on, bit for bit")
        else:
            self.findings.note(
                f"{resumed} it validates otherwise than the one that went on ({shown(right[0].metrics)}, not "
                f"{shown(left[0].metrics)}): its checkpoint lacks something (docs/core-api.md, exact resume)."
            )


def _different_attributes(left: Path, right: Path) -> list[str]:
    """Names of the attributes that two checkpoints of a PyTorch trial hold with different values."""
    if not (left / "state.pt").exists() or not (right / "state.pt").exists():
        return []
    from tenuto.workers.pytorch.state import load_plain
    from tenuto.workers.pytorch.user_attributes import shown
    from tenuto.workers.user_state.marks import mark_of_encoded

    found = [
        {tuple(path): mark_of_encoded(encoded, versions=False) for path, encoded in load_plain(place).get("attributes") or ()}
        for place in (left, right)
    ]
    paths = [path for path in {**found[0], **found[1]} if found[0].get(path) != found[1].get(path)]
    return [shown(path) for path in paths[:ATTRIBUTES_SHOWN_MAX]]


WEIGHTS_SUFFIX = ".safetensors"


def _weights(record: Path, batches: int) -> dict[str, str]:
    """SHA-256 of the weights files at a position, by path."""
    from tenuto.workers.core_api.local_record import checkpoints_of

    report = next(item for item in checkpoints_of(record) if item.batches == batches)
    return {file.path: file.sha256 for file in report.files if file.path.endswith(WEIGHTS_SUFFIX)}


def _validations(record: Path) -> list[ValidationReport]:
    from tenuto.schemas.reports import ValidationReport
    from tenuto.workers.core_api.local_record import read_lines

    return [line.body for line in read_lines(record) if isinstance(line.body, ValidationReport)]


def _ended_alone(record: Path) -> bool:
    """True if the script ended without an error and never called the API."""
    ended = _ended(record)
    return ended is not None and not ended.batches


def _ended(record: Path) -> TrainingEndedReport | None:
    from tenuto.schemas.reports import TrainingEndedReport
    from tenuto.workers.core_api.local_record import read_lines

    return next((line.body for line in read_lines(record) if isinstance(line.body, TrainingEndedReport)), None)
