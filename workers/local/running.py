"""Trains the trial of a record in this process: the harness as in a cluster, whose agent is a directory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tenuto.kernel.clock import SystemClock
from tenuto.schemas.assignments import Action
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.entrypoint import script_of
from tenuto.schemas.reports import TrainingEndedReport, ValidationReport, never_reported
from tenuto.workers.core_api.local_record import Body, RunDescription, checkpoints_of, read_lines, read_run
from tenuto.workers.core_api.local_session import SCRIPT_ENDS, lock, open_record
from tenuto.workers.core_api.script import run_script
from tenuto.workers.core_api.session import Session, say, set_current
from tenuto.workers.errors import InvalidHyperparameters, describe
from tenuto.workers.harness import frameworks
from tenuto.workers.harness.class_training import train_class
from tenuto.workers.harness.entrypoint import enter_context, load_trial_class
from tenuto.workers.harness.schedule import Shorten
from tenuto.workers.harness.trainer import Trainer, TrialBase
from tenuto.workers.local.terminal import Terminal

EXIT_FAILED = 2
"""The trial failed, as an experiment that `tenuto exp wait` waits for."""
EXIT_INTERRUPTED = 130
TRIAL_ENDS = "the trial saves and ends after this batch"


@dataclass
class Foreground:
    """One process's part in a run without a cluster."""

    session: Session
    description: RunDescription

    @classmethod
    def open(
        cls,
        record: Path,
        *,
        show: Callable[[Body], None] | None = None,
        sources: Path | None = None,
        shorten: Shorten | None = None,
    ) -> Foreground:
        """Locks a record that was begun, and goes on with it. `show` is told each report; None: the terminal is. `sources`:
        directory of the user's code, if the record has not all of it. Raises UserError."""
        unlock = lock(record)
        try:
            description = read_run(record)
            clock = SystemClock()
            script = script_of(description.config.entrypoint)
            session = open_record(
                record,
                description,
                unlock,
                show=Terminal(description.config, clock) if show is None else show,
                ends=TRIAL_ENDS if script is None else SCRIPT_ENDS,
                sources=sources,
                clock=clock,
            )
            session.shorten = shorten
        except BaseException:
            unlock()
            raise
        return cls(session, description)

    def train(
        self,
        model_directory: Path | None,
        trial_class: type[TrialBase] | None = None,
        built: Callable[[Trainer], None] = lambda trainer: None,
    ) -> Action:
        """Trains until the run is over, or was asked to leave. `model_directory`: becomes the current directory, and has the
        entrypoint; None: `trial_class` is given. Raises UserError, or the error of the user's code."""
        session = self.session
        try:
            values = json.dumps(self.description.hyperparameters, default=str)
            say(f"hyperparameters {values}, experiment_seed {self.description.seed}")
            for sentence in differences(self.description.config):
                say(sentence)
            for framework in frameworks.every().values():
                framework.enter(session.assignment, None)
            if model_directory is not None:
                enter_context(model_directory)
            entrypoint = self.description.config.entrypoint
            script = script_of(entrypoint)
            if trial_class is None and script is not None:
                assert model_directory is not None
                return run_script(script, model_directory, session)
            if trial_class is None:
                assert model_directory is not None
                trial_class = load_trial_class(entrypoint, model_directory)
            return train_class(
                trial_class,
                session.assignment,
                session.box,
                session.reports,
                session.checkpoint_directory,
                session.clock,
                built=built,
                shorten=session.shorten,
            )
        finally:
            self.close()

    def close(self) -> None:
        """Ends this process's part. A second call is harmless."""
        if self.session.run is not None:
            self.session.run._close()
        for action in self.session.at_close:
            action()
        set_current(None)


def differences(config: ExperimentConfig) -> list[str]:
    """Sentences about settings that mean something else here than in a cluster."""
    found = []
    slots = config.resources.slots_per_trial
    if slots != 1:
        asked = slots if isinstance(slots, int) else "several"
        found.append(f"resources.slots_per_trial asks for {asked} slots; this process trains on one, so results can differ")
    if config.searcher.source_checkpoint is not None:
        found.append("searcher.source_checkpoint is ignored: without a cluster, the location of that checkpoint is not known")
    return found


def main(record: Path, model_directory: Path) -> int:
    """Trains in the foreground; returns the exit status."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        foreground = Foreground.open(record)
        action = foreground.train(model_directory)
    except KeyboardInterrupt:
        say(f"ended at once; {_again(record)}")
        return EXIT_INTERRUPTED
    except BaseException as error:  # whatever the user's code raises, SystemExit included, is the user's to see
        say(f"the trial failed: {describe(error, model_directory)}")
        if isinstance(error, InvalidHyperparameters):
            say(
                "in a cluster the search would draw another configuration instead; give one with --set hyperparameters.NAME=VALUE"
            )
        return EXIT_FAILED
    if action != "stop":
        say(_again(record))
        return EXIT_INTERRUPTED
    if any(isinstance(line.body, TrainingEndedReport) and not line.body.batches for line in read_lines(record)):
        say("the run is over; it reported nothing that could be imported into a cluster")
        return 0
    if found := unreported(record):
        say(f"the trial failed: {found}")
        return EXIT_FAILED
    say(f"the run is over; `tenuto run import {record}` makes it an experiment of a cluster")
    return 0


def unreported(record: Path) -> str:
    """The sentence with which the search of a cluster fails if its only trial never reports the metric. Empty: it did."""
    metric = read_run(record).config.searcher.metric
    names: set[str] = set()
    for line in read_lines(record):
        if isinstance(line.body, ValidationReport):
            names |= line.body.metrics.keys()
    return "" if metric in names else never_reported(metric, sorted(names))


def _again(record: Path) -> str:
    saved = checkpoints_of(record)
    where = f"at batch {saved[-1].batches}" if saved else "at the beginning: there is no checkpoint yet"
    return f"the same command with --record {record} goes on {where}"
