"""`pytorch.PyTorchCallback`, and the one callback of Tenuto's that calls those of a trial in Determined's order: each hook of all
callbacks before the next hook."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from tenuto.workers.errors import WillRepeat
from tenuto.workers.pytorch.callbacks import PyTorchCallback as OurCallback


class PyTorchCallback:
    """Base class of a trial's callbacks, with Determined's hooks."""

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Called before the data loaders are made."""

    def on_trial_shutdown(self) -> None:
        """Called before the process ends in order."""

    def on_training_start(self) -> None:
        """Called after a checkpoint was loaded, before the first batch."""

    def on_training_epoch_start(self, epoch_idx: int) -> None: ...

    def on_training_epoch_end(self, epoch_idx: int) -> None: ...

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        """Called after the batches between two positions at which something is due."""

    def on_validation_start(self) -> None: ...

    def on_validation_epoch_start(self) -> None: ...

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        """`outputs`: results of `evaluate_batch`."""

    def on_validation_end(self, metrics: dict[str, Any]) -> None: ...

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        """Called with what `on_checkpoint_save_start` was given, after the trial's own state was loaded."""

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Called before the checkpoint is written: keys that are added are part of it."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        """Called when the files are written, before they are stored: files that are added are part of it."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """Old name of `on_checkpoint_write_end`."""

    def on_checkpoint_upload_end(self, uuid: str) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


def overridden(callbacks: Mapping[str, PyTorchCallback], *names: str) -> bool:
    """True if a callback has one of these hooks."""
    return any(getattr(type(one), name) is not getattr(PyTorchCallback, name) for one in callbacks.values() for name in names)


def checked(callbacks: Any, at: Any) -> dict[str, PyTorchCallback]:
    """The result of `build_callbacks`. Raises WillRepeat."""
    if not isinstance(callbacks, Mapping) or not all(isinstance(one, PyTorchCallback) for one in callbacks.values()):
        raise WillRepeat("build_callbacks must return a dict from names to instances of determined's PyTorchCallback.", at=at)
    for callback in callbacks.values():
        for name in dir(callback):
            if name.startswith("on_") and not hasattr(PyTorchCallback, name):
                raise WillRepeat(f"{type(callback).__name__}.{name} is no hook of Determined's; it would never be called.", at=at)
    return dict(callbacks)


class AllCallbacks(OurCallback):
    def __init__(self, callbacks: dict[str, PyTorchCallback], by_batches: bool) -> None:
        """`by_batches`: the trial has `evaluate_batch`."""
        self.callbacks = callbacks
        self._by_batches = by_batches
        self._outputs: list[Any] = []
        self._added: dict[str, Any] = {}

    def on_training_start(self) -> None:
        for one in self.callbacks.values():
            one.on_training_start()

    def on_epoch_start(self, epoch_idx: int) -> None:
        for one in self.callbacks.values():
            if inspect.signature(one.on_training_epoch_start).parameters:
                one.on_training_epoch_start(epoch_idx)
            else:
                one.on_training_epoch_start()  # type: ignore[call-arg]  # the form until 0.17.8

    def on_epoch_end(self, epoch_idx: int) -> None:
        for one in self.callbacks.values():
            one.on_training_epoch_end(epoch_idx)

    def on_validation_start(self) -> None:
        self._outputs = []
        for one in self.callbacks.values():
            one.on_validation_start()
        if self._by_batches:
            for one in self.callbacks.values():
                one.on_validation_epoch_start()

    def note_output(self, output: Any) -> None:
        self._outputs.append(output)

    def on_validation_end(self, metrics: Mapping[str, float]) -> None:
        outputs, self._outputs = self._outputs, []
        if self._by_batches:
            for one in self.callbacks.values():
                one.on_validation_epoch_end(outputs)
        for one in self.callbacks.values():
            one.on_validation_end(dict(metrics))

    def on_checkpoint_save_end(self, checkpoint_id: str) -> None:
        for one in self.callbacks.values():
            one.on_checkpoint_upload_end(uuid=checkpoint_id)

    def saving(self, checkpoint: dict[str, Any]) -> None:
        """Gives the state that is saved to the callbacks, and keeps what they add to it."""
        before = dict(checkpoint)
        for one in self.callbacks.values():
            one.on_checkpoint_save_start(checkpoint)
        for name, value in before.items():
            if checkpoint.get(name) is not value:
                raise WillRepeat(
                    f"on_checkpoint_save_start changes checkpoint[{name!r}], which Tenuto saves itself; add keys of your own."
                )
        self._added = {name: value for name, value in checkpoint.items() if name not in before}

    def loaded(self, checkpoint: dict[str, Any]) -> None:
        for one in self.callbacks.values():
            one.on_checkpoint_load_start({**checkpoint, **self._added})

    def wrote(self, directory: str) -> None:
        for one in self.callbacks.values():
            one.on_checkpoint_write_end(directory)
            one.on_checkpoint_end(directory)

    def state_dict(self) -> Mapping[str, Any]:
        return {"callbacks": {name: one.state_dict() for name, one in self.callbacks.items()}, "added": self._added}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._added = state["added"]
        for name, one in self.callbacks.items():
            if name in state["callbacks"]:
                one.load_state_dict(state["callbacks"][name])
