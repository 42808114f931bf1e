"""Conversion between a trial in training and the parts of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tenuto.workers.checkpoints.files import RECORD_FILE, CheckpointRecord
from tenuto.workers.checkpoints.host_memory import has_room
from tenuto.workers.errors import UserError, WillRepeat
from tenuto.workers.pytorch import groups, options, pruning, seeds, snapshots, state, user_attributes
from tenuto.workers.pytorch.callbacks import PyTorchCallback
from tenuto.workers.pytorch.context import PyTorchTrialContext
from tenuto.workers.pytorch.distributed import fsdp
from tenuto.workers.pytorch.distributed.rank_states import Collected as Collected
from tenuto.workers.pytorch.distributed.rank_states import collect as collect_ranks
from tenuto.workers.pytorch.distributed.rank_states import mean_of_ranks, of_rank
from tenuto.workers.pytorch.exactness import EXACTNESS_FILE, Exactness
from tenuto.workers.pytorch.gradients import open_gradients, restore_gradients, waiting_gradients
from tenuto.workers.pytorch.metrics import TrainingMetrics
from tenuto.workers.pytorch.own_state import SchedulerState
from tenuto.workers.pytorch.structure import Structure
from tenuto.workers.pytorch.tensor_memory import size_bytes
from tenuto.workers.pytorch.training_data import DataPosition
from tenuto.workers.pytorch.trial import PyTorchTrial
from tenuto.workers.user_state.attributes import Attributes

if TYPE_CHECKING:
    from tenuto.workers.pytorch.distributed.ranks import Ranks


@dataclass(frozen=True)
class Parts:
    """Objects over which the state of a trial is spread."""

    context: PyTorchTrialContext
    trial: PyTorchTrial
    callbacks: Mapping[str, PyTorchCallback]
    metrics: TrainingMetrics
    exactness: Exactness
    given: options.Given
    """Options of the optimizers, as `__init__` gave them."""
    attributes: Attributes
    """Attributes of the trial and its callbacks, as they were before training."""
    structure: Structure
    hyperparameters: Mapping[str, Any]
    """Hyperparameters of the trial: the state of a sampler is not taken from a trial with others."""


def collect(parts: Parts, ranks: Ranks, last_batch: str | None) -> Collected:
    """Collects the state of all ranks; called on all of them."""
    context = parts.context
    own: dict[str, Any] = {
        "random": seeds.random_state(),
        "metrics": parts.metrics.state(),
        "reducers": [_state_of(item.reducer) if item.for_training else None for item in context._reducers],
        "carried": [item.carried for item in context._reducers],
        "last_batch": last_batch,
    }
    # Else gradients are the same on all ranks, or the parts of one whole, which are with the parts of the model.
    if context._optimizations.aggregation_frequency > 1 and context._shards is None:
        own["gradients"] = open_gradients(context._optimizers, lambda gradient: gradient.detach().cpu())
    users_own = {
        "trial": _state_of(parts.trial),
        "callbacks": {name: _state_of(item) for name, item in parts.callbacks.items()},
        "attributes": parts.attributes.state(),
    }
    if context._shards is not None:
        if ranks.rank == 0 and fsdp.holds_back_gradients(context._models):
            parts.exactness.note_lost(fsdp.HELD_BACK)
        context._shards.collect(
            {
                "models": [model.state_dict() for model in context._models],
                "optimizers": [optimizer.state_dict() for optimizer in context._optimizers],
                "gradients": open_gradients(context._optimizers, torch.Tensor.detach),
            }
        )
    return collect_ranks(context._batches, own, users_own, ranks)


def capture(
    parts: Parts, data: DataPosition, buffers: snapshots.Buffers | None, collected: Collected | None = None
) -> Callable[[Path], None]:
    """Copies the present state; returns a function that writes it into an empty directory, once. `buffers`: memory for the copy,
    so that training may go on before the function is called; None: it must wait.

    Raises UserError for state that cannot be copied; the function raises OSError, and UserError for state that cannot be pickled.
    """
    context, shards = parts.context, parts.context._shards  # with shards, models and optimizers are in files of their own
    detached = torch.Tensor.detach
    weights, models_other = [], []
    for model in context._models:
        tensors, others = state.divided(dict(model.state_dict())) if shards is None else ({}, {})
        weights.append(tensors)
        models_other.append(others)
    saved: dict[str, Any] = {
        "batches": context._batches,
        "groups": groups.groups_of(context._optimizers, context._models),
        "optimizers": [optimizer.state_dict() if shards is None else {} for optimizer in context._optimizers],
        "gradients": open_gradients(context._optimizers, detached) if shards is None else [None for _ in context._optimizers],
        "schedulers": [SchedulerState(item.scheduler).state_dict() for item in context._schedulers],
        "given": parts.given,
        "learning_rate": context._scaling.state(),
        "scheduler_steps": [item.optimizer_steps for item in context._schedulers],
        "scalers": [scaler.state_dict() for scaler in context._scalers],
        "models_unsaved": [_unsaved(model, context) for model in context._models],
        "random": seeds.random_state(),
        "metrics": parts.metrics.state(),
        "reducers": [_state_of(item.reducer) if item.for_training else None for item in context._reducers],
        "carried": [item.carried for item in context._reducers],
        "callbacks": {name: _state_of(callback) for name, callback in parts.callbacks.items()},
        "stream": data.stream,
        "orders": data.orders,
        "last_batch": data.last_batch,
        "dataset": data.dataset,
        "trial": _state_of(parts.trial),
        "attributes": parts.attributes.state(),
    }
    if collected is not None:
        saved["ranks"] = collected.ranks
    saved["models_other"] = models_other
    plain, others = state.by_kind(saved)
    kept: dict[str, Any] | state.Pickled = others
    copier = None if buffers is None else snapshots.Copier(buffers)
    if copier is not None:
        kept = state.Pickled.of(others) if others else others  # at once: what its own code does later does not reach it
        copier.look(plain)
        weights = [copier(tensors) for tensors in weights]
        plain = {name: copier.later(value) if name == "optimizers" else copier(value) for name, value in plain.items()}
        copier.finish()
    shard_files = None if shards is None else shards.files()
    user_attributes.note_unsaved(context, parts.trial, parts.attributes, parts.structure, parts.exactness)
    exactness = parts.exactness.record()

    def write(directory: Path) -> None:
        try:
            if copier is not None:
                copier.wait()
            for index, tensors in enumerate(weights):
                if shard_files is None:
                    state.save_model(tensors, directory / state.model_file(index))
            if shard_files is not None:
                shard_files.move(directory)
            state.save_kinds(plain, kept, directory)
            (directory / EXACTNESS_FILE).write_bytes(exactness)
        finally:
            if copier is not None:
                copier.done()

    return write


def prepare(parts: Parts, buffers: snapshots.Buffers, has_room: Callable[[int], bool] = has_room) -> None:
    """Makes memory for the first copy, in the background, if there is room for it. Called when the optimizers have taken a step,
    and so have state."""
    context = parts.context
    state_dicts = [[dict(model.state_dict()) for model in context._models], [item.state_dict() for item in context._optimizers]]
    if has_room(size_bytes(state_dicts)):
        buffers.prepare(state_dicts)


def memory_needed(parts: Parts, buffers: snapshots.Buffers) -> int:
    """Bytes of the models and optimizers, whose copy is most of a copy of the state. 0: there is memory for it already."""
    context = parts.context
    if buffers.has_free or context._shards is not None:  # shards are copied to the disk
        return 0
    models = [dict(model.state_dict()) for model in context._models]
    return size_bytes([models, [optimizer.state_dict() for optimizer in context._optimizers]])


def restore(
    parts: Parts, directory: Path, ranks: Ranks | None = None, seed: int = 0, say: Callable[[str], None] = lambda _: None
) -> DataPosition:
    """Restores the state; returns the position of the data. Raises OSError; UserError if `__init__` did not wrap an object
    that was saved. `seed`: of the trial, for ranks that the checkpoint does not know."""
    context, saved = parts.context, state.load_parts(directory)
    _check_same(saved, context, parts.callbacks)
    own = of_rank(saved, *((0, 1) if ranks is None else (ranks.rank, ranks.size)))
    if type(parts.trial).rebuild is not PyTorchTrial.rebuild:
        parts.trial.rebuild(own.get("users", saved)["trial"])
    begun = parts.attributes.marks()
    whole = _restore_models(parts, directory, saved)
    schedulers = [item.scheduler for item in context._schedulers]
    if changed := options.take_over(context._optimizers, schedulers, parts.given, saved.get("given")):
        say(f"the optimizer takes what this trial's hyperparameters give: {', '.join(changed)}")
    for scaler, value in zip(context._scalers, saved["scalers"], strict=True):
        scaler.load_state_dict(value)
    gradients = own.get("gradients", whole["gradients"])
    if context._shards is not None:  # its gradients are means over the ranks already
        gradients = mean_of_ranks(saved) or gradients
    restore_gradients(context._optimizers, gradients)
    parts.metrics.restore(own["metrics"])
    for reducer, value, carried in zip(context._reducers, own["reducers"], own["carried"], strict=True):
        if value is not None:
            reducer.reducer.load_state_dict(value)
        reducer.carried = list(carried)
    context._batches = int(saved["batches"])
    context._scaling.restore(saved.get("learning_rate"), context._batches, context._epoch_batches)
    parts.exactness.resume((directory / EXACTNESS_FILE).read_bytes())
    user_attributes.restore(parts.trial, parts.callbacks, parts.attributes, own.get("users", saved), parts.exactness, begun)
    if own["random"] is not None:
        seeds.restore_random_state(own["random"])
    else:
        seeds.seed_everything(seeds.derive_seed(seed, "training", context.rank, "from", context._batches))
    same = _has_hyperparameters(directory, parts.hyperparameters)
    return DataPosition(
        stream=saved["stream"],
        orders=saved.get("orders") if same else None,
        last_batch=own.get("last_batch") if same else None,
        dataset=saved.get("dataset"),
    )


def _restore_models(parts: Parts, directory: Path, saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Restores models with their optimizers and schedulers. Returns the state with the gradients. Raises WillRepeat if they do
    not fit."""
    context = parts.context
    whole = fsdp.read_whole(directory) or saved
    try:
        for index, model in enumerate(context._models):
            values = state.load_model_state(directory, index) | saved["models_other"][index]
            pruning.renew(model, values)
            model.load_state_dict(values if context._shards is None else fsdp.divided_model(model, values))
            _restore_unsaved(model, saved["models_unsaved"][index])
    except (RuntimeError, ValueError) as error:
        if not isinstance(error, ValueError) and "loading state_dict" not in str(error):
            raise  # a device may be at fault
        raise WillRepeat(
            "the checkpoint does not fit the model that __init__ builds: its code or its structure changed since. "
            "Take the code with which it was saved, or make the change in rebuild(self, state) of the trial, which is called "
            "before a checkpoint is loaded."
        ) from error
    groups.rebuild(context._optimizers, context._models, saved.get("groups"))
    for optimizer, value in zip(context._optimizers, whole["optimizers"], strict=True):
        optimizer.load_state_dict(value if context._shards is None else fsdp.divided_optimizer(optimizer, value))
    for item, value, steps in zip(context._schedulers, saved["schedulers"], saved["scheduler_steps"], strict=True):
        SchedulerState(item.scheduler).load_state_dict(value)
        item.optimizer_steps = steps
    return whole


def restore_weights(context: PyTorchTrialContext, directory: Path) -> None:
    """Loads only the models' weights, of a checkpoint that another trial made, perhaps another user's: nothing is unpickled,
    so the state of a model besides tensors stays as `__init__` made it. Raises OSError; UserError if they do not fit."""
    others = state.load_plain(directory).get("models_other")
    count = len(others) if others is not None else sum(1 for _ in directory.glob(state.MODEL_FILES))
    if count != len(context._models):
        raise WillRepeat(f"searcher.source_checkpoint holds {count} models, but __init__ wrapped {len(context._models)}.")
    for index, model in enumerate(context._models):
        own = {name: value for name, value in model.state_dict().items() if not isinstance(value, torch.Tensor)}
        values = own | state.load_model_state(directory, index) | (others[index] if others is not None else {})
        try:
            model.load_state_dict(values if context._shards is None else fsdp.divided_model(model, values))
        except RuntimeError as error:
            raise WillRepeat(f"the weights of searcher.source_checkpoint do not fit the model: {error}") from error


def _state_of(owner: Any) -> dict[str, Any]:
    state_dict = owner.state_dict()
    if not isinstance(state_dict, Mapping):
        kind = type(owner).__name__
        raise UserError(
            f"{kind}.state_dict returned a value of type {type(state_dict).__name__}; it must return a dict.",
            at=owner.state_dict,
        )
    return dict(state_dict)


def _has_hyperparameters(directory: Path, hyperparameters: Mapping[str, Any]) -> bool:
    try:
        record = CheckpointRecord.from_json((directory / RECORD_FILE).read_bytes())
    except FileNotFoundError:
        return True
    return record.hyperparameters == dict(hyperparameters)


def _check_same(saved: Mapping[str, Any], context: PyTorchTrialContext, callbacks: Mapping[str, Any]) -> None:
    kinds: tuple[tuple[str, str, Sequence[Any]], ...] = (
        ("optimizers", "optimizers", context._optimizers),
        ("schedulers", "schedulers", context._schedulers),
        ("scalers", "scalers (with that of mixed_precision: fp16)", context._scalers),
        ("models_other", "models", context._models),
        ("reducers", "reducers", context._reducers),
    )
    for kind, name, have in kinds:
        if len(saved[kind]) != len(have):
            raise WillRepeat(
                f"the checkpoint holds {len(saved[kind])} {name}, but __init__ wrapped {len(have)}; "
                "it must wrap the same ones in the same order each time."
            )
    if sorted(saved["callbacks"]) != sorted(callbacks):
        raise WillRepeat(
            f"the checkpoint holds the callbacks {sorted(saved['callbacks'])}, but build_callbacks returned {sorted(callbacks)}; "
            "it must return the same names each time."
        )


def _unsaved(model: nn.Module, context: PyTorchTrialContext) -> dict[str, Any]:
    """State that training can change in a model and that its state dict leaves out: modules' modes, frozen parameters, buffers
    that are not persistent, gradients that no wrapped optimizer uses."""
    kept = model.state_dict().keys()
    return {
        "training": [module.training for module in model.modules()],
        "trained": [parameter.requires_grad for parameter in model.parameters()],
        "buffers": {name: buffer for name, buffer in model.named_buffers() if name not in kept},
        "gradients": waiting_gradients(model, context._optimizers) if context._shards is None else {},
    }


def _restore_unsaved(model: nn.Module, saved: Mapping[str, Any]) -> None:
    for module, training in zip(model.modules(), saved["training"], strict=True):
        module.training = training
    for parameter, trained in zip(model.parameters(), saved["trained"], strict=True):
        parameter.requires_grad_(trained)
    parameters = dict(model.named_parameters())
    for name, gradient in saved.get("gradients", {}).items():
        parameters[name].grad = gradient.to(parameters[name].device)
    buffers = dict(model.named_buffers())
    for name, value in saved["buffers"].items():
        if name in buffers and buffers[name].shape == value.shape:
            buffers[name].copy_(value)
