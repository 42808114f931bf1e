"""Gradients that wait for further batches when a checkpoint is made.

Other gradients need not be saved: an optimizer has used them, and the next batch clears them. A used gradient is recognised by
its version counter at the time of the step: a later backward pass that adds to it (a second model's loss, say) changes that, so
it is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from tenuto.schemas.config.experiment import Optimizations
from tenuto.workers.pytorch.distributed import fsdp

_USED = "_tenuto_used_version"


def mark_used(optimizer: torch.optim.Optimizer) -> None:
    """Marks gradients after a step. The mark is on the gradient itself, so that it lives no longer."""
    for parameter in parameters(optimizer):
        gradient = parameter.grad
        if gradient is not None:
            setattr(gradient, _USED, gradient._version)


def open_gradients(
    optimizers: Sequence[torch.optim.Optimizer], copy: Callable[[torch.Tensor], torch.Tensor]
) -> list[list[torch.Tensor | None]]:
    """Gradients per optimizer and parameter; None for those that need not be saved."""
    return [
        [
            None
            if (gradient := parameter.grad) is None or getattr(gradient, _USED, None) == gradient._version
            else copy(gradient)
            for parameter in parameters(optimizer)
        ]
        for optimizer in optimizers
    ]


def waiting_gradients(model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, torch.Tensor]:
    """Gradients of a model's parameters that none of these optimizers has: another one may be about to use them."""
    known = {id(parameter) for optimizer in optimizers for parameter in parameters(optimizer)}
    return {
        name: parameter.grad.detach()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and id(parameter) not in known
    }


def restore_gradients(optimizers: Sequence[torch.optim.Optimizer], saved: Sequence[Sequence[torch.Tensor | None] | None]) -> None:
    for optimizer, gradients in zip(optimizers, saved, strict=True):
        for parameter, gradient in zip(parameters(optimizer), gradients or [], strict=False):
            if gradient is not None:
                parameter.grad = fsdp.like(parameter, gradient).to(parameter.device)


def configured_clip(optimizations: Optimizations) -> Callable[[Iterable[torch.nn.Parameter]], None] | None:
    """Function that clips the gradients of the parameters it gets; None if none is configured."""
    norm, value = optimizations.clip_grad_norm, optimizations.clip_grad_value
    if norm is None and value is None:
        return None

    def clip(parameters: Iterable[torch.nn.Parameter]) -> None:
        kept = list(parameters)
        if value is not None:
            torch.nn.utils.clip_grad_value_(kept, value)
        if norm is not None:
            torch.nn.utils.clip_grad_norm_(kept, norm)

    return clip


def parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
