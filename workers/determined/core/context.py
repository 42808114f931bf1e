"""`det.core.init()`."""

from __future__ import annotations

import contextlib
import math
from types import TracebackType
from typing import Any, Literal, Self

from tenuto.workers.core_api import start
from tenuto.workers.core_api.run import Run
from tenuto.workers.core_api.session import Session, current, say
from tenuto.workers.determined import facts
from tenuto.workers.determined.core.checkpoint import CheckpointContext
from tenuto.workers.determined.core.positions import DeterminedPositions
from tenuto.workers.determined.core.searching import SearcherContext
from tenuto.workers.determined.core.train import TrainContext
from tenuto.workers.determined.distributed import DistributedContext
from tenuto.workers.determined.info import ClusterInfo, get_cluster_info
from tenuto.workers.errors import UserError


class PreemptContext:
    def __init__(self, run: Run) -> None:
        self._run = run

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """True: save a checkpoint and leave. On several slots every rank must ask equally often."""
        return self._run.should_preempt()

    def acknowledge_preemption_signal(self) -> None:
        """Nothing to do: leaving is the answer."""


class ProfilerContext:
    """Nothing is profiled: use your framework's profiler."""

    def on(self, *_: Any, **__: Any) -> None: ...

    def off(self) -> None: ...


class Context:
    """Use as a context manager: `with det.core.init() as core_context:`."""

    def __init__(self, session: Session, run: Run, distributed: DistributedContext | None) -> None:
        decides = facts.script_decides(run.config)
        positions = DeterminedPositions(session.assignment.config.searcher.max_length.unit, decides)
        run._lengths = positions  # type: ignore[assignment]  # has what reports and checkpoints ask of it
        self._run, self._session, self._positions, self._decides = run, session, positions, decides
        self.train = TrainContext(run, positions, holds=decides)
        self.searcher = SearcherContext(session, run, positions, self.train, decides)
        self.checkpoint = CheckpointContext(session, run)
        self.preempt = PreemptContext(run)
        self.profiler = ProfilerContext()
        self.distributed = distributed or DistributedContext.of_environment()

    @property
    def info(self) -> ClusterInfo | None:
        return get_cluster_info()

    def alert(self, title: str = "", description: str = "", level: Any = "info") -> None:
        """A line in the trial's log."""
        known: dict[str, Literal["info", "warning", "error"]] = {"warn": "warning", "warning": "warning", "error": "error"}
        word = str(getattr(level, "name", level)).lower()
        self._run.alert(title, description, known.get(word, "info"))

    def start(self) -> None:
        """Nothing to do: it is started when it is made."""

    def close(self) -> None:
        """Ends the run: what waits is reported, and if the script says itself how long it trains, this was all of it."""
        if self._decides and not self._session.box.current.leave:
            steps = self.train.held_at()
            if steps is None:
                say(f"the script has reported no validation: {self._run.metric} is recorded as NaN, as the search needs one.")
                steps = max(self._run.steps, 1)
                self.train.report_validation_metrics(steps, {self._run.metric: math.nan})
            self._positions.reach(steps, 1)
        self.train.send_held()
        self._run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Literal[False]:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        else:
            with contextlib.suppress(Exception):  # the error that is under way says more
                self._run._close()
        return False


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: Any = None,
    preempt_mode: Any = None,
    tensorboard_mode: Any = None,
) -> Context:
    """The trial that this script trains. The arguments but `distributed` are settings of Determined's without effect here."""
    session = current()
    if session is None or facts.current() is None:
        raise UserError("det.core.init() trains where Tenuto runs the script: `tenuto exp create`, with --local or without.")
    return Context(session, start.init(), distributed)
