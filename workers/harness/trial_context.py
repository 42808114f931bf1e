"""Facts and settings that a trial can ask for, with any framework."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from tenuto.schemas.events.trial import Level
from tenuto.workers.errors import UserError
from tenuto.workers.harness import determined_names, early_end, notifier
from tenuto.workers.harness.batch_sizes import PerSlotBatchSize
from tenuto.workers.harness.trainer import TrialInfo


class TrialContext:
    """The experiment's settings for this trial."""

    _names_elsewhere: ClassVar[Mapping[str, str]] = determined_names.TRIAL_CONTEXT

    _by_determineds_rules: ClassVar[bool] = False
    """True: names mean what they mean in Determined (`tenuto.workers.determined`)."""

    def __getattr__(self, name: str) -> Any:
        raise determined_names.missing(self._names_elsewhere, "context", name)

    def __init__(self, info: TrialInfo) -> None:
        self._info = info
        self._asked_per_slot = False
        """True: the batch size of one slot was asked for."""
        self._stop_requested: str | None = None
        """Reason for which the trial's code asked to end the training. None if it did not."""

    def get_hparam(self, name: str) -> Any:
        """Value of the hyperparameter `name`; `optimizer.momentum` selects from a group, and the name of a group gives a dict.
        Raises UserError with the existing names.

            def __init__(self, context):
                self.rate = context.get_hparam("learning_rate")
        """
        value: Any = self._info.hyperparameters
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                known = ", ".join(sorted(_names(self._info.hyperparameters))) or "none"
                raise UserError(f"there is no hyperparameter {name!r}; the experiment has: {known}.")
            value = value[part]
        return copy.deepcopy(value)  # the user may change it: the record, and later callers, keep their own

    def get_hparams(self) -> dict[str, Any]:
        """All hyperparameters by name, a copy; a group is a dict."""
        return copy.deepcopy(dict(self._info.hyperparameters))

    def get_experiment_config(self) -> dict[str, Any]:
        """The whole configuration as plain data, defaults included; a copy."""
        return copy.deepcopy(dict(self._info.config))

    def get_experiment_id(self) -> int:
        """Id of the experiment."""
        return self._info.experiment_id

    def get_trial_id(self) -> str:
        """Id of the trial, such as 3-7: the seventh of experiment 3."""
        return self._info.trial_id

    def get_trial_seed(self) -> int:
        """Seed for generators of your own. The global ones are seeded already."""
        return self._info.trial_seed

    def notify(self, text: str, level: Level = "info") -> bool:
        """Sends users a notice, through the webhooks with the trigger `notice`. `text`: at most 1,000 characters; the rest is
        cut. `level`: info, warning or error. Returns True if it is sent, and False if there were too many: 20 at once, and then 6
        a minute. Of several ranks, rank 0's count. Raises UserError for another level and an empty text."""
        return notifier.notify(text, level)

    def set_stop_requested(self, stop_requested: bool = True, reason: str = "") -> None:
        """Ends the training after this step: before the length that the search asked for, with early stopping for example. The
        trial is validated and saved there, counts by that validation, is recorded as completed with `reason` (one line; empty:
        the name of this method), and is not trained further. Of several ranks one that asks is enough. `stop_requested`: False
        takes it back, as long as the step is not over."""
        self._stop_requested = early_end.reason_of(reason or "context.set_stop_requested") if stop_requested else None

    def get_stop_requested(self) -> bool:
        """True if `set_stop_requested` asked to end the training."""
        return self._stop_requested is not None

    def get_global_batch_size(self) -> int:
        """The hyperparameter `global_batch_size`: records per step over all slots. Raises UserError if there is none, and with
        `distributed.global_batch_size: scale`."""
        if (self._info.config.get("distributed") or {}).get("global_batch_size") == "scale":
            raise UserError(
                "with distributed.global_batch_size: scale the batch of the DataLoader is that of one slot; name that "
                "hyperparameter otherwise, and read it with context.get_hparam."
            )
        return int(self.get_hparam("global_batch_size"))

    def get_per_slot_batch_size(self) -> int:
        """Records per step on one slot, at most. A PyTorch training loader with this batch size, as it was returned, trains the
        batches of all slots: `get_global_batch_size()` records per step. Raises UserError like that."""
        size = -(-self.get_global_batch_size() // self.slots)
        self._asked_per_slot = True
        return PerSlotBatchSize(size) if self.may_have_several_slots else size

    def _batch_of_all_slots(self, per_slot: int) -> int:
        """Records of a step over all slots, for a loader that holds those of one slot."""
        return self.get_global_batch_size()

    @property
    def may_have_several_slots(self) -> bool:
        """True if the configuration allows several slots, also while an elastic trial has one."""
        asked = (self._info.config.get("resources") or {}).get("slots_per_trial", 1)
        return isinstance(asked, Mapping) or asked > 1 or self.slots > 1

    @property
    def rank(self) -> int:
        """Rank of this process among the `slots` of the trial, from 0."""
        return 0 if self._info.gang is None else self._info.gang.rank

    @property
    def slots(self) -> int:
        """Number of processes that train this trial together, each on one slot. It may differ when a trial is resumed."""
        return 1 if self._info.gang is None else self._info.gang.world_size


def _names(space: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    for name, value in space.items():
        if isinstance(value, Mapping):
            yield from _names(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
