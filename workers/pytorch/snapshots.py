"""Copies of a trial's state, so that training goes on while they are written.

Training waits for the copying, so it is made as cheap as the machine allows: into memory that exists already (fresh memory costs
several times as much as copying, because the system provides it page by page), by several threads if there are processors for
them, and without torch's thread pool, which belongs to the training. The optimizers' state, which is most of the state, changes
only when an optimizer steps: it is copied while the next forward and backward pass run, and the step waits for it (as in
CheckFreq, Mohan et al., FAST 2021, section 4.1).
"""

from __future__ import annotations

import copy
import ctypes
import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from tenuto.workers.pytorch import state

COPY_THREADS_MAX = 4
"""Most threads: these saturate the memory bus of most machines; other trials need the remaining processors."""
PIECE_BYTES = 8 << 20
"""Bytes copied by a thread at a time: large tensors are divided among threads."""
SMALL_BYTES_MAX = 64 << 10
"""Largest tensor that is copied at once: handing it to another thread takes as long."""
_Key = tuple[Any, ...]


class Buffers:
    """Memory for copies: made ahead, and reused by the next copy. Holds at most one copy of the state."""

    def __init__(self) -> None:
        self._free: dict[_Key, list[torch.Tensor]] = {}
        self._preparing: threading.Thread | None = None
        self.threads = ThreadPoolExecutor(copy_threads(), thread_name_prefix="tenuto-snapshot")

    def prepare(self, value: Any) -> None:
        """Makes memory for the tensors in `value`, in the background, so that the first copy is as quick as later ones."""
        likes = {_identity(tensor): tensor for tensor in _tensors(value) if tensor.layout is torch.strided}
        wanted = [(_shape(tensor), _empty(tensor)) for tensor in likes.values()]  # address space only, not yet memory

        def fault_in() -> None:
            for key, made in wanted:
                if _is_plain_memory(made):
                    ctypes.memset(made.data_ptr(), 0, made.nbytes)
                self._free.setdefault(key, []).append(made)

        self._preparing = threading.Thread(target=fault_in, name="tenuto-buffers", daemon=True)
        self._preparing.start()

    def take(self, like: torch.Tensor) -> torch.Tensor:
        preparing, self._preparing = self._preparing, None
        if preparing is not None:
            preparing.join()  # no slower than to make the memory here
        free = self._free.get(_shape(like))
        return free.pop() if free else _empty(like)

    def give_back(self, copies: Iterable[tuple[_Key, torch.Tensor]]) -> None:
        """Takes back the copies of one snapshot; memory of others that was not used since is released."""
        free: dict[_Key, list[torch.Tensor]] = {}
        for key, kept in copies:
            free.setdefault(key, []).append(kept)
        self._free = free


@dataclass(frozen=True)
class _Piece:
    target: int
    origin: int
    size_bytes: int
    source: torch.Tensor
    """Owner of the memory: a tensor that was made for a state dict would otherwise be freed with it."""
    version: int

    def copy(self) -> bool:
        """Copies the piece; False if it was changed meanwhile. (Torch counts changes, except those through `.data`.)"""
        ctypes.memmove(self.target, self.origin, self.size_bytes)
        return self.source._version == self.version


class Torn(OSError):
    """The copy is not a state that the trial was ever in."""


class Copier:
    """One copy of the state. Tensors that share all their memory share the copy.

    `finish` must be called before the state changes, and `wait` before the copy is used.
    """

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self._copies: dict[_Key, torch.Tensor] = {}
        self._now: list[_Piece] = []
        self._later: list[_Piece] = []
        self._pieces = self._now
        """List to which pieces are added."""
        self._under_way: list[Future[bool]] = []
        self._hook: RemovableHandle | None = None

    def tensor(self, value: torch.Tensor) -> torch.Tensor:
        if value.layout is not torch.strided:
            return value.detach().clone().cpu()
        key = _identity(value)
        if key not in self._copies:
            self._copies[key] = self._copy(value.detach())
        return self._copies[key]

    def _copy(self, value: torch.Tensor) -> torch.Tensor:
        made = self._buffers.take(value)
        if value.nbytes <= SMALL_BYTES_MAX or not _is_plain_memory(value) or made.stride() != value.stride():
            return made.copy_(value)
        target, origin = made.data_ptr(), value.data_ptr()
        for start in range(0, value.nbytes, PIECE_BYTES):
            size_bytes = min(PIECE_BYTES, value.nbytes - start)
            self._pieces.append(_Piece(target + start, origin + start, size_bytes, value, value._version))
        return made

    def later(self, value: Any) -> Any:
        """Copies state that only an optimizer's step changes; it may be copied until then."""
        self._pieces = self._later
        try:
            return self(value)
        finally:
            self._pieces = self._now

    def finish(self) -> None:
        """Returns when everything is copied except what was given to `later`. The next step of any optimizer waits for the
        rest."""
        if self._later:
            self._hook = register_optimizer_step_pre_hook(lambda *_: self._before_step())
        submit = self._buffers.threads.submit
        now = [submit(piece.copy) for piece in self._now]
        self._under_way = [submit(piece.copy) for piece in self._later]
        self._now.clear()
        self._later.clear()
        for future in now:
            future.result()

    def _before_step(self) -> None:
        for future in self._under_way:
            future.result()
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.remove()

    def wait(self) -> None:
        """Returns when everything is copied. Raises Torn."""
        sound = [future.result() for future in self._under_way]
        if not all(sound):
            raise Torn(errno.EAGAIN, "an optimizer's state was changed between two of its steps, while it was copied")

    def done(self) -> None:
        """The copies are no longer needed."""
        wait(self._under_way)
        self._buffers.give_back((key[2:], copy) for key, copy in self._copies.items())

    def __call__(self, value: Any) -> Any:
        """Copies a value. Raises UserError for one that cannot be copied."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if type(value) in (dict, OrderedDict):
            return type(value)((key, self(item)) for key, item in value.items())
        if type(value) in (list, tuple, set):
            return type(value)(self(item) for item in value)
        if type(value) in state._PLAIN:
            return value
        try:
            return copy.deepcopy(value)
        except (AttributeError, TypeError, RuntimeError) as error:
            raise state._unpicklable(error) from error


def copy_threads() -> int:
    """Number of copying threads, from the processors that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(COPY_THREADS_MAX, allowed))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _shape(tensor: torch.Tensor) -> _Key:
    return (tensor.dtype, tensor.shape, tensor.stride())


def _identity(tensor: torch.Tensor) -> _Key:
    """Identity of a tensor's memory, equal for tensors that share all of it."""
    return (tensor.device, tensor.data_ptr() or id(tensor), *_shape(tensor))


def _empty(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(like, device="cpu", requires_grad=False)


def _is_plain_memory(tensor: torch.Tensor) -> bool:
    """True if the tensor's values are one contiguous piece of this process's memory."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and (tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)))
        and not tensor.is_inference()  # their changes are not counted
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_quantized
    )
