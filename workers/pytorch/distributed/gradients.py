"""Averages gradients over the ranks during the backward pass, as torch's DistributedDataParallel does (Li et al., PyTorch
Distributed, VLDB 2020, section 3.2: buckets, in reverse order of the parameters, sent while the rest is computed).

That class itself is not used: it regroups its buckets after the first step of each process, which changes the order of sums, so a
resumed trial of three ranks or more would not have the bits of an uninterrupted one, as benchmarks/ddp_resume.py shows (here the
buckets are a function of the model); it wraps the model, so `self.model.encode(x)` or `self.model.head` of a trial would no
longer work; and it gives all ranks the same weight, which is wrong if the shares of a batch differ.

After a backward pass the gradients are those of the whole batch, also if several passes add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch.distributed.ranks import Ranks

BUCKET_BYTES = 25 * 1024 * 1024
FIRST_BUCKET_BYTES = 1024 * 1024
"""Size of the first bucket, as in torch: it is small, so that sending begins early."""


class _Bucket:
    """Parameters of one type on one device, and the memory in which their gradients are sent. The last elements say, per
    parameter, whether any rank has a gradient."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self.parameters = parameters
        first = parameters[0]
        sizes = [parameter.numel() for parameter in parameters]
        self.flat = torch.zeros(sum(sizes) + len(parameters), dtype=first.dtype, device=first.device)
        *pieces, self.flags = torch.split(self.flat, [*sizes, len(parameters)])
        self.views = [piece.view(parameter.shape) for piece, parameter in zip(pieces, parameters, strict=True)]
        self.seen = 0
        """Gradients that this backward pass has finished."""
        self.wait: Callable[[], Any] | None = None
        """Function that waits for the exchange while it is under way."""

    def start(self, ranks: Ranks, factor: float) -> None:
        gradients, views = [], []
        for parameter, view in zip(self.parameters, self.views, strict=True):
            if parameter.grad is None:
                view.zero_()
            elif parameter.grad.layout is not torch.strided:
                raise UserError("a parameter has sparse gradients, which cannot be averaged over slots; use sparse=False.")
            else:
                gradients.append(parameter.grad)
                views.append(view)
        torch._foreach_copy_(views, gradients)
        if len(gradients) == len(self.parameters):
            self.flags.fill_(1)
        else:
            self.flags.copy_(torch.tensor([float(item.grad is not None) for item in self.parameters]))
        self.flat.mul_(factor)
        self.wait = ranks.start_sum(self.flat)

    def wait_for(self) -> None:
        assert self.wait is not None
        self.wait()

    def finish(self) -> None:
        self.wait, self.seen = None, 0
        have = [(item.grad, view) for item, view in zip(self.parameters, self.views, strict=True) if item.grad is not None]
        torch._foreach_copy_([gradient for gradient, _ in have], [view for _, view in have])  # type: ignore[arg-type]
        if len(have) < len(self.parameters):
            others = self.flags.tolist()
            for parameter, view, flag in zip(self.parameters, self.views, others, strict=True):
                if parameter.grad is None and flag > 0:
                    parameter.grad = view.clone()


class GradientSync:
    def __init__(self, ranks: Ranks, wanted: Callable[[], bool], factor: Callable[[], float]) -> None:
        """`wanted`: True if gradients of this batch are averaged; otherwise they are only accumulated. `factor`: this rank's
        weight in the sum, once per backward pass."""
        self._ranks, self._wanted, self._factor = ranks, wanted, factor
        self._optimizers: list[torch.optim.Optimizer] = []
        self._buckets: list[list[_Bucket]] = []
        """Buckets by optimizer."""
        self._owner: dict[torch.nn.Parameter, tuple[int, _Bucket]] = {}
        """Index of its optimizer, and bucket, of each parameter."""
        self._trained: list[int] = []
        """Identities of the trained parameters when the buckets were made; other ones need new buckets."""
        self._hooks: list[Any] = []
        self._touched: set[int] = set()
        """Optimizers of which this backward pass has reached a parameter."""
        self._next = 0
        """Index of the next bucket to send, if there is one optimizer."""
        self._pass_factor = 1.0
        """Weight of this rank, fixed at the beginning of the backward pass."""

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers.append(optimizer)

    def prepare(self) -> None:
        """Called before a batch: notices parameters that were frozen, unfrozen or added."""
        trained = [id(parameter) for parameter in _trained(self._optimizers)]
        if trained == self._trained:
            return
        for hook in self._hooks:
            hook.remove()
        self._trained, self._hooks, self._owner, self._buckets = trained, [], {}, []
        for index, optimizer in enumerate(self._optimizers):
            own = [parameter for parameter in _trained([optimizer]) if parameter not in self._owner]
            self._buckets.append([])
            for parameters in _divide(own):
                bucket = _Bucket(parameters)
                self._buckets[index].append(bucket)
                for parameter in parameters:
                    self._owner[parameter] = (index, bucket)
                    hook = parameter.register_post_accumulate_grad_hook(self._made)  # type: ignore[no-untyped-call]
                    self._hooks.append(hook)

    def _made(self, parameter: torch.Tensor) -> None:
        """A gradient is finished."""
        if not self._wanted():
            return
        index, bucket = self._owner[parameter]  # type: ignore[index]
        # The first gradient of a backward pass: its end is announced by the autograd engine, which knows when no more come.
        if not self._touched:
            self._next, self._pass_factor = 0, self._factor()
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)  # type: ignore[attr-defined]
        self._touched.add(index)
        bucket.seen += 1
        if len(self._optimizers) > 1:
            return  # ranks might interleave the buckets of several optimizers differently
        buckets = self._buckets[0]
        while self._next < len(buckets) and buckets[self._next].seen >= len(buckets[self._next].parameters):
            buckets[self._next].start(self._ranks, self._pass_factor)
            self._next += 1

    def _finish(self) -> None:
        """The backward pass is over. All buckets of an optimizer are sent if any of its parameters was reached, so that ranks
        that took different branches of a model still agree."""
        touched, self._touched = sorted(self._touched), set()
        buckets = [bucket for index in touched for bucket in self._buckets[index]]
        with torch.no_grad():
            for bucket in buckets:
                if bucket.wait is None:
                    bucket.start(self._ranks, self._pass_factor)
            for bucket in buckets:
                with self._ranks.gang.progress.waiting():
                    bucket.wait_for()
                bucket.finish()


def _trained(optimizers: Iterable[torch.optim.Optimizer]) -> list[torch.nn.Parameter]:
    """Trained parameters, each once."""
    found: dict[torch.nn.Parameter, None] = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            found.update({parameter: None for parameter in group["params"] if parameter.requires_grad})
    return list(found)


def _divide(parameters: list[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    """Parameters in buckets, the last ones first: their gradients are finished first."""
    divided: list[list[torch.nn.Parameter]] = []
    kinds: dict[tuple[Any, ...], list[torch.nn.Parameter]] = {}
    for parameter in reversed(parameters):
        kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    for kind in kinds.values():
        # The sizes depend on the model alone, and not on timing, so every process makes the same sums.
        limit, size, bucket = FIRST_BUCKET_BYTES, 0, []
        for parameter in kind:
            bucket.append(parameter)
            size += parameter.numel() * parameter.element_size()
            if size >= limit:
                divided.append(bucket)
                limit, size, bucket = BUCKET_BYTES, 0, []
        if bucket:
            divided.append(bucket)
    return divided
