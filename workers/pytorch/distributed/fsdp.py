"""Models whose parameters are divided among the ranks (torch's `fully_shard`: Zhao et al., PyTorch FSDP, VLDB 2023), and their
checkpoints: a file per rank with its part of every tensor, in one checkpoint.

A checkpoint saved by any number of ranks can be read by any other number, and by trials that are not divided, and vice versa.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn

from tenuto.workers.errors import WillRepeat
from tenuto.workers.pytorch.distributed.ranks import Ranks

SHARDS_FILE = "shards.json"
"""File in a checkpoint of divided models: the number of its shard files."""
_PART = "tenuto_part"
"""Mark, in a shard file, of a part of a tensor that is divided along its first dimension."""
SEND_BYTES = 64 * 1024 * 1024


def shard_file(rank: int) -> str:
    return f"shard-{rank}.pt"


def divide(model: nn.Module, ranks: Ranks) -> None:
    """Divides a model. Each member of a list of layers is fetched when it is needed; all other parameters, together."""
    from torch.distributed.fsdp import fully_shard

    _show_waits(ranks)
    mesh = dist.init_device_mesh(ranks.device.type, (ranks.size,))  # type: ignore[attr-defined]
    for module in list(model.modules()):
        if isinstance(module, nn.ModuleList):
            for layer in module:
                if any(True for _ in layer.parameters()):
                    fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if _is_root_of_part(module):
            type(module).__deepcopy__ = _refuse_copy  # type: ignore[attr-defined]


def _is_root_of_part(module: nn.Module) -> bool:
    from torch.distributed.fsdp import FSDPModule

    return isinstance(module, FSDPModule)


def _refuse_copy(module: nn.Module, memo: Any) -> NoReturn:
    """Replaces torch's `__deepcopy__` of divided models, which only says that there is none. Raises WillRepeat."""
    name = type(module).__name__.removeprefix("FSDP")
    raise WillRepeat(
        f"copy.deepcopy of a {name} whose parameters are divided among the ranks (distributed.strategy: fsdp): a copy has no "
        "part in that. Copy the model before wrap_model, and wrap both: "
        "`average = context.wrap_model(copy.deepcopy(model))`, then `model = context.wrap_model(model)`."
    )


HELD_BACK = (
    "gradients wait on each rank for a later exchange, as set_requires_gradient_sync(False) of a divided model asks, and no "
    "checkpoint holds them; leave out that call: with optimizations.aggregation_frequency each rank accumulates its part"
)


def holds_back_gradients(models: Iterable[nn.Module]) -> bool:
    """True if ranks have gradients of the whole model that they did not exchange yet."""
    for module in (module for model in models for module in model.modules() if _is_root_of_part(module)):
        state: Any = module._get_fsdp_state()  # type: ignore[operator]
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        for parameter in (item for group in groups if group is not None for item in group.fsdp_params):
            whole = getattr(parameter, "_unsharded_param", None)
            if getattr(parameter, "unsharded_accumulated_grad", None) is not None or getattr(whole, "grad", None) is not None:
                return True
    return False


_EXCHANGES = ("all_gather_into_tensor", "all_gather_single", "reduce_scatter_tensor", "reduce_scatter_single", "all_reduce")
"""Functions that fully_shard calls, in one version of torch or another."""


def _show_waits(ranks: Ranks) -> None:
    """Counts the time in fully_shard's exchanges as waiting; they happen in code that is not ours."""

    def shown(exchange: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(exchange)
        def call(*arguments: Any, **named: Any) -> Any:
            with ranks.waiting():
                return exchange(*arguments, **named)

        call._tenuto_shows = True  # type: ignore[attr-defined]
        return call

    for name in _EXCHANGES:
        exchange = getattr(dist, name, None)
        if exchange is not None and not hasattr(exchange, "_tenuto_shows"):
            setattr(dist, name, shown(exchange))


def is_divided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and hasattr(value, "to_local")


def to_parts(value: Any) -> Any:
    """A nested state with each divided tensor replaced by this rank's part, on the CPU."""
    if is_divided(value):
        return {_PART: value.to_local().detach().cpu().clone(), "shape": list(value.shape)}
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, Mapping):
        return {key: to_parts(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(to_parts(item) for item in value)
    return value


def to_whole(parts: list[Any]) -> Any:
    """The whole state from all ranks' parts."""
    first = parts[0]
    if isinstance(first, Mapping):
        if _PART in first:
            return torch.cat([part[_PART] for part in parts])[: first["shape"][0]]
        return {key: to_whole([part[key] for part in parts]) for key in first}
    if isinstance(first, (list, tuple)):
        return type(first)(to_whole(list(items)) for items in zip(*parts, strict=True))
    return first


def like(value: Any, whole: torch.Tensor) -> torch.Tensor:
    """This rank's part of a whole tensor, divided like `value`; the tensor itself if `value` is not divided."""
    if not is_divided(value):
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole.to(value.device), value.device_mesh, value.placements, src_data_rank=None)


def divided_model(model: nn.Module, whole: Mapping[str, Any]) -> dict[str, Any]:
    """A whole state dict, divided like the model."""
    own = model.state_dict()
    return {name: like(own.get(name), value) for name, value in whole.items()}


def divided_optimizer(optimizer: torch.optim.Optimizer, whole: dict[str, Any]) -> dict[str, Any]:
    """The optimizer's state, divided like the parameters that it belongs to."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def divided(index: int, value: Any) -> Any:
        fits = isinstance(value, torch.Tensor) and value.shape == parameters[index].shape
        return like(parameters[index], value) if fits else value

    state = {index: {name: divided(index, value) for name, value in items.items()} for index, items in whole["state"].items()}
    return {**whole, "state": state}


class Shards:
    """Collects all ranks' parts on rank 0's disk, one rank after the other, so that no process needs memory for the whole."""

    def __init__(self, ranks: Ranks) -> None:
        """Files are put beside those of the run, which its agent cleans up."""
        error_file = os.environ.get("TENUTO_ERROR_FILE", "")
        self._ranks, self._parent = ranks, Path(error_file).parent if error_file else None
        self._directory: Path | None = None

    def collect(self, state: Mapping[str, Any]) -> None:
        """Called on all ranks. `state`: models, optimizers and gradients, with divided tensors."""
        self.close()
        ranks, parts = self._ranks, to_parts(state)
        if ranks.rank > 0:
            with tempfile.TemporaryFile(dir=self._parent) as file:
                torch.save(parts, file)
                _send(file, ranks)
            return
        self._directory = Path(tempfile.mkdtemp(prefix="shards-", dir=self._parent))
        torch.save(parts, self._directory / shard_file(0))
        for rank in range(1, ranks.size):
            with (self._directory / shard_file(rank)).open("wb") as file:
                _receive(file, rank)
        (self._directory / SHARDS_FILE).write_text(json.dumps({"ranks": ranks.size}))

    def files(self) -> ShardFiles:
        """The files of the last `collect`, for one checkpoint, whatever is collected next. Raises OSError."""
        assert self._directory is not None
        linked = Path(tempfile.mkdtemp(prefix="shards-", dir=self._parent))
        for path in self._directory.iterdir():
            try:
                os.link(path, linked / path.name)
            except OSError:  # a file system without links
                shutil.copyfile(path, linked / path.name)
        return ShardFiles(linked)

    def close(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


class ShardFiles:
    """Files on rank 0's disk that go into one checkpoint."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # They also go where the checkpoint is given up before its turn.
        self._release = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)

    def move(self, into: Path) -> None:
        """Moves them into a checkpoint's directory, once. Raises OSError."""
        try:
            for path in sorted(self._directory.iterdir()):
                shutil.move(path, into / path.name)
        finally:
            self._release()


def read_whole(directory: Path) -> dict[str, Any] | None:
    """State of a checkpoint of divided models; None if it is none. The files are mapped, not read into memory at once."""
    if not (directory / SHARDS_FILE).exists():
        return None
    count = json.loads((directory / SHARDS_FILE).read_text())["ranks"]
    files = [directory / shard_file(rank) for rank in range(count)]
    whole: dict[str, Any] = to_whole([torch.load(path, map_location="cpu", weights_only=True, mmap=True) for path in files])
    return whole


def _send(file: Any, ranks: Ranks) -> None:
    size = file.seek(0, 2)
    file.seek(0)
    dist.send(torch.tensor([size]), 0)
    while size > 0:
        piece = file.read(min(size, SEND_BYTES))
        dist.send(torch.frombuffer(bytearray(piece), dtype=torch.uint8), 0)
        size -= len(piece)


def _receive(file: Any, rank: int) -> None:
    head = torch.zeros(1, dtype=torch.int64)
    dist.recv(head, rank)
    size = int(head.item())
    while size > 0:
        piece = torch.empty(min(size, SEND_BYTES), dtype=torch.uint8)
        dist.recv(piece, rank)
        file.write(piece.numpy().tobytes())
        size -= len(piece)
