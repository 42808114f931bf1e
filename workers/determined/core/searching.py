"""`core_context.searcher`: lengths that the search asks for, as code until 0.37 asks for them."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from tenuto.workers.core_api.run import Run
from tenuto.workers.core_api.session import Session
from tenuto.workers.determined.core.positions import DeterminedPositions
from tenuto.workers.determined.core.train import TrainContext
from tenuto.workers.errors import UserError


class Unit(enum.Enum):
    EPOCHS = "UNIT_EPOCHS"
    RECORDS = "UNIT_RECORDS"
    BATCHES = "UNIT_BATCHES"


class SearcherMode(enum.Enum):
    """Determined's choice of ranks that may ask the searcher. Tenuto answers every rank, whatever is given."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"


class SearcherOperation:
    def __init__(self, owner: SearcherContext, length: int) -> None:
        self._owner, self._length = owner, length
        self._completed = False

    @property
    def length(self) -> int:
        """Length to train to, in all, in the unit of `searcher.max_length`."""
        return self._length

    def report_progress(self, length: float) -> None:
        """Nothing to do: progress follows from the steps that are reported."""

    def report_completed(self, searcher_metric: Any) -> None:
        if self._completed:
            raise UserError("op.report_completed was called twice.")
        self._completed = True
        self._owner._complete(self._length, searcher_metric)


class SearcherContext:
    def __init__(
        self, session: Session, run: Run, positions: DeterminedPositions, train: TrainContext, script_decides: bool
    ) -> None:
        self._session, self._run, self._positions, self._train = session, run, positions, train
        self._script_decides = script_decides
        self._completed = 0

    def get_configured_units(self) -> Unit | None:
        if self._script_decides:
            return None
        return Unit.EPOCHS if self._positions.unit == "epochs" else Unit.BATCHES

    def acknowledge_out_of_ops(self) -> None:
        """Nothing to do: the end of the operations is known."""

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        """Each length that the search asks for; ends when the trial is over, or has to leave its slots. Raises UserError."""
        if self._script_decides:
            raise UserError("searcher.operations() needs searcher.max_length in the configuration, which has none.")
        self._train.holds = True
        box, gang = self._session.box, self._session.gang
        while True:
            if gang is not None:
                gang.progress.idle()
            directive = box.current
            if directive.leave:
                return
            if self._completed >= directive.target_length:
                self._run._send_points()
                box.wait_change(directive)  # the search is deciding
                continue
            operation = SearcherOperation(self, directive.target_length)
            yield operation
            if box.current.leave:
                return
            if not operation._completed:
                raise UserError("the body of `for op in searcher.operations()` ended without op.report_completed(metric).")

    def _complete(self, length: int, searcher_metric: Any) -> None:
        self._completed = length
        steps = self._train.held_at()
        if steps is None:  # no validation was reported since the last operation
            last = self._run.validated_at
            steps = max(self._run.steps, length if self._positions.unit == "batches" else 1, 0 if last is None else last + 1)
            self._train.report_validation_metrics(steps, {})
        self._positions.reach(steps, length)
        self._train.send_held({self._run.metric: searcher_metric})
