"""Copies of a trial's state, so that training goes on while they are written.

Training waits for the copying, so it is made as cheap as the machine allows: into memory that exists already (fresh memory costs
several times as much as copying, because the system provides it page by page), by several threads if there are processors for
them, and without torch's thread pool, which belongs to the training. The optimizers' state, which is most of the state, changes
only when an optimizer steps: it is copied while the next forward and backward pass run, and the step waits for it (as in
CheckFreq, Mohan et al., FAST 2021, section 4.1). A GPU copies into pinned memory, in the order of its stream: what training asks
of it afterwards happens after the copy, so the training thread waits for nothing.
"""

from __future__ import annotations

import copy
import ctypes
import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from tenuto.workers.pytorch import state
from tenuto.workers.pytorch.tensor_memory import (
    MemoryKey,
    has_values_of_its_memory,
    identity_of,
    is_plain_memory,
    memory_like,
    overlap,
    shape_of,
    tensors_in,
    whole_of,
)

COPY_THREADS_MAX = 4
"""Most threads: these saturate the memory bus of most machines; other trials need the remaining processors."""
PIECE_BYTES = 8 << 20
"""Bytes copied by a thread at a time: large tensors are divided among threads."""
SMALL_BYTES_MAX = 64 << 10
"""Largest tensor that is copied at once: handing it to another thread takes as long."""


_Memory = dict[MemoryKey, list[torch.Tensor]]


class Buffers:
    """Memory for copies: made ahead, and reused by the next copy. Keeps that of one copy while none is under way."""

    def __init__(self) -> None:
        self._free: _Memory | None = None
        """Memory of a copy that is not used; None: there is none."""
        self._lock = threading.Lock()
        self._preparing: threading.Thread | None = None
        self.threads = ThreadPoolExecutor(copy_threads(), thread_name_prefix="tenuto-snapshot")

    def prepare(self, value: Any) -> None:
        """Makes memory for the tensors in `value`, in the background, so that the first copy is as quick as later ones."""
        likes = {identity_of(tensor): tensor for tensor in tensors_in(value) if tensor.layout is torch.strided}
        on_the_cpu = [tensor for tensor in likes.values() if tensor.device.type == "cpu"]
        wanted = [(shape_of(tensor), memory_like(tensor)) for tensor in on_the_cpu]  # address space only, not yet memory
        others = [(shape_of(tensor), tensor) for tensor in likes.values() if tensor.device.type != "cpu"]

        def fault_in() -> None:
            made: _Memory = {}
            for key, memory in wanted:
                if is_plain_memory(memory):
                    ctypes.memset(memory.data_ptr(), 0, memory.nbytes)
                made.setdefault(key, []).append(memory)
            for key, like in others:  # pinning takes as long as the pages
                made.setdefault(key, []).append(memory_like(like))
            others.clear()  # the tensors may be large, and go before this thread's function does
            self._free = made

        self._preparing = threading.Thread(target=fault_in, name="tenuto-buffers", daemon=True)
        self._preparing.start()

    @property
    def has_free(self) -> bool:
        """True if there is memory for a copy, or it is being made."""
        return self._preparing is not None or self._free is not None

    def take(self) -> _Memory:
        """Memory for one copy, as far as there is some."""
        preparing, self._preparing = self._preparing, None
        if preparing is not None:
            preparing.join()  # no slower than to make the memory here
        with self._lock:
            taken, self._free = self._free, None
            return taken or {}

    def give_back(self, copies: Iterable[tuple[MemoryKey, torch.Tensor]]) -> None:
        """Takes back the memory of one copy; that of another one is released, as two copies are rarely under way."""
        free: _Memory = {}
        for key, kept in copies:
            free.setdefault(key, []).append(kept)
        with self._lock:
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
    """One copy of the state. Objects that are one remain one, and tensors that share memory share it in the copy.

    `finish` must be called before the state changes, and `wait` before the copy is used.
    """

    def __init__(self, buffers: Buffers) -> None:
        self._buffers, self._memory = buffers, buffers.take()
        self._copies: dict[MemoryKey, torch.Tensor] = {}
        self._owned: list[tuple[MemoryKey, torch.Tensor]] = []
        """Copies with memory of their own, which another copy may use later."""
        self._wholes: dict[MemoryKey, torch.Tensor] = {}
        """Copies of memory that several different tensors share, by device and address."""
        self._shared: set[MemoryKey] = set()
        self._kinds: dict[MemoryKey, torch.Tensor] = {}
        """Parameters and tensors with a gradient, made of the copies of their memory."""
        self._containers: dict[int, Any] = {}
        self._sources: list[Any] = []
        """Everything copied so far: an address or an id says who someone is only while he is there."""
        self._now: list[_Piece] = []
        self._later: list[_Piece] = []
        self._pieces = self._now
        """List to which pieces are added."""
        self._under_way: list[Future[bool]] = []
        self._events: list[Any] = []
        """Events of the GPUs' streams, after which their part is copied."""

    def look(self, value: Any) -> None:
        """Finds out which tensors of `value` share a part of their memory. Called before any of them is copied."""
        self._sources.append(value)
        found: dict[MemoryKey, dict[MemoryKey, torch.Tensor]] = {}
        for tensor in tensors_in(value):
            if tensor.layout is torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.nbytes:
                found.setdefault(whole_of(tensor), {})[identity_of(tensor)] = tensor
        self._shared |= {key for key, parts in found.items() if len(parts) > 1 and overlap(list(parts.values()))}

    def tensor(self, value: torch.Tensor) -> torch.Tensor:
        if value.layout is not torch.strided:
            return value.detach().clone().cpu()
        key = identity_of(value)
        if key not in self._copies:
            self._sources.append(value)
            shared = bool(self._shared) and whole_of(value) in self._shared and has_values_of_its_memory(value)
            self._copies[key] = self._part(value.detach()) if shared else self._own(key, value.detach())
        if value.requires_grad or isinstance(value, torch.nn.Parameter):
            return self._of_kind(value, self._copies[key])
        return self._copies[key]

    def _of_kind(self, value: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        """The copy as what the tensor is, as a file has it that is written while training waits."""
        kind = torch.nn.Parameter if type(value) is torch.nn.Parameter else torch.Tensor
        key = (*identity_of(value), kind, value.requires_grad)
        if key not in self._kinds:
            if kind is torch.nn.Parameter:
                self._kinds[key] = torch.nn.Parameter(made, requires_grad=value.requires_grad)
            else:
                self._kinds[key] = made.detach().requires_grad_(value.requires_grad)
        return self._kinds[key]

    def _part(self, value: torch.Tensor) -> torch.Tensor:
        key = whole_of(value)
        if key not in self._wholes:
            memory = value.new_empty(0, dtype=torch.uint8).set_(value.untyped_storage())  # type: ignore[call-overload]
            self._wholes[key] = memory.to("cpu", copy=True)
        storage = self._wholes[key].untyped_storage()
        made = torch.empty(0, dtype=value.dtype)
        return made.set_(storage, value.storage_offset(), value.shape, value.stride())  # type: ignore[call-overload, no-any-return]

    def _own(self, key: MemoryKey, value: torch.Tensor) -> torch.Tensor:
        self._owned.append((key[2:], made := self._copy(value)))
        return made

    def _copy(self, value: torch.Tensor) -> torch.Tensor:
        free = self._memory.get(shape_of(value))
        made = free.pop() if free else memory_like(value)
        if value.device.type == "cuda" and made.is_pinned():
            return made.copy_(value.resolve_conj().resolve_neg(), non_blocking=True)
        if value.nbytes <= SMALL_BYTES_MAX or not is_plain_memory(value) or made.stride() != value.stride():
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
            _let_steps_wait_for(self)
        for device in sorted({key[0].index for key in self._copies if key[0].type == "cuda"}):
            self._events.append(torch.cuda.current_stream(device).record_event())
        submit = self._buffers.threads.submit
        now = [submit(piece.copy) for piece in self._now]
        self._under_way = [submit(piece.copy) for piece in self._later]
        self._now.clear()
        self._later.clear()
        for future in now:
            future.result()
        self._sources.clear()
        self._containers.clear()
        self._memory = {}  # of tensors that are gone

    @property
    def is_copied(self) -> bool:
        return all(future.done() for future in self._under_way)

    def wait_for_pieces(self) -> None:
        """Returns when the memory that is copied may change."""
        for future in self._under_way:
            future.result()

    def wait(self) -> None:
        """Returns when everything is copied. Raises Torn."""
        for event in self._events:
            event.synchronize()
        sound = [future.result() for future in self._under_way]
        if not all(sound):
            raise Torn(errno.EAGAIN, "an optimizer's state was changed between two of its steps, while it was copied")

    def done(self) -> None:
        """The copies are no longer needed."""
        wait(self._under_way)
        self._buffers.give_back(self._owned)

    def __call__(self, value: Any) -> Any:
        """Copies a value. Raises UserError for one that cannot be copied."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        kind = type(value)
        if kind in (dict, OrderedDict, list, set):
            if id(value) not in self._containers:
                self._sources.append(value)
                self._containers[id(value)] = self._container(value, kind)
            return self._containers[id(value)]
        if kind is tuple:
            return tuple([self(item) for item in value])
        if type(value) in state._PLAIN:
            return value
        try:
            return copy.deepcopy(value)
        except (AttributeError, TypeError, RuntimeError) as error:
            raise state._unpicklable(error) from error

    def _container(self, value: Any, kind: Any) -> Any:
        if kind in (list, set):
            return kind([self(item) for item in value])
        made = kind((key, self(item)) for key, item in value.items())
        if kind is OrderedDict:
            vars(made).update(self(vars(value)))  # as a module's state has its versions there
        return made


_copying: list[Copier] = []
"""Copies that the next step of an optimizer waits for."""
_hooks: list[RemovableHandle] = []


def _let_steps_wait_for(copier: Copier) -> None:
    # One hook for the process, which stays: torch goes through its hooks while they run, so none may remove itself then.
    if not _hooks:
        _hooks.append(register_optimizer_step_pre_hook(_before_step))
    # Some optimizers step seldom: what is copied meanwhile is not held here until they do.
    _copying[:] = [other for other in _copying if not other.is_copied] + [copier]


def _before_step(*_: Any) -> None:
    while _copying:
        _copying.pop().wait_for_pieces()


def copy_threads() -> int:
    """Number of copying threads, from the processors that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(COPY_THREADS_MAX, allowed))
