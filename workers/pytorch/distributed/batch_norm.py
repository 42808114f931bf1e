"""Batch normalization with the statistics of all ranks' records (Ioffe and Szegedy 2015; over several devices: Peng et al.,
MegDet, 2018, section 3.3), `distributed: {sync_batch_norm: true}`.

Why not torch's SyncBatchNorm: it refuses CPUs, and it counts the records of a rank whose share of the batch is empty, which
computes along without weight. Means and variances are put together as in Chan et al., Updating formulae and a pairwise algorithm
for computing sample variances, 1979, in double precision, so that N ranks have the statistics of one to the rounding of a float.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tenuto.workers.harness.errors import UserError
from tenuto.workers.pytorch.distributed.ranks import Ranks

_LINK = "_tenuto_statistics"


class Link:
    """What such a layer asks of the trial. Copies of a model, such as averaged ones, keep it."""

    def __init__(
        self, ranks: Ranks, counts: Callable[[], bool], factor: Callable[[], float], training: Callable[[], bool]
    ) -> None:
        """`counts`: this rank has records in the batch. `factor`: its weight in the sum of gradients. `training`: within
        `train_batch`, which all ranks call."""
        self.ranks, self.counts, self.factor, self.training = ranks, counts, factor, training

    def __deepcopy__(self, memo: Any) -> Link:
        return self

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        with self.ranks.waiting():
            self.ranks.sum_now(values)
        return values


def synchronize(model: nn.Module, link: Link) -> None:
    """Every layer of batch normalization in it. The model's modules, names and parameters stay what they are."""
    for module in model.modules():
        if isinstance(module, nn.modules.lazy.LazyModuleMixin):
            raise UserError(
                f"distributed.sync_batch_norm: {type(module).__name__} does not know its size yet; run a batch through the model "
                "before wrap_model, or name the size."
            )
        if isinstance(module, _BatchNorm):
            kind = type(module)
            module.__class__ = type(kind.__name__, (_Synchronized, kind), {})
            object.__setattr__(module, _LINK, link)


class _Synchronized(_BatchNorm):
    """Stands before the class of a layer."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        link: Link = getattr(self, _LINK)
        if not self.training or not link.training():
            return super().forward(input)
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(f"expected input of {self.num_features} channels, got the shape {tuple(input.shape)}")
        mean, variance, count = _statistics(input.detach(), link)
        if self.track_running_stats:
            self._track(mean, variance, count)
        weight = torch.ones_like(mean) if self.weight is None else self.weight
        bias = torch.zeros_like(mean) if self.bias is None else self.bias
        inverse = torch.rsqrt(variance + self.eps)
        output: torch.Tensor = _Normalize.apply(input, weight, bias, mean, inverse, count, link)  # type: ignore[no-untyped-call]
        return output

    @torch.no_grad()
    def _track(self, mean: torch.Tensor, variance: torch.Tensor, count: float) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_((variance * (count / max(count - 1, 1))).to(self.running_var.dtype), momentum)


def _statistics(input: torch.Tensor, link: Link) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Mean and biased variance by channel over all ranks, in double precision, and the number of values in each."""
    size, rank, channels = link.ranks.size, link.ranks.rank, input.shape[1]
    each = torch.zeros(size, 2 * channels + 1, dtype=torch.float64, device=input.device)
    if link.counts():
        values = input.transpose(0, 1).reshape(channels, -1).double()
        variance, mean = torch.var_mean(values, dim=1, correction=0)
        each[rank, :channels], each[rank, channels:-1], each[rank, -1] = mean, variance, values.shape[1]
    link.sum(each)
    means, variances, counts = each[:, :channels], each[:, channels:-1], each[:, -1:]
    count = float(counts.sum())
    if count <= 1:
        raise ValueError(
            f"batch normalization needs more than 1 value per channel in training; all slots together have {count:g}"
        )
    mean = (means * counts).sum(0) / count
    variance = ((variances + (means - mean) ** 2) * counts).sum(0) / count
    return mean, variance, count


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, bias: Any, mean: Any, inverse: Any, count: float, link: Link) -> torch.Tensor:
        ctx.save_for_backward(input, weight, mean, inverse)
        ctx.count, ctx.link, ctx.has_records = count, link, link.counts()
        scale = weight.double() * inverse
        shift = bias.double() - mean * scale
        kind = torch.promote_types(input.dtype, torch.float32)
        output = input.to(kind) * _over_channels(scale, input).to(kind) + _over_channels(shift, input).to(kind)
        normalized: torch.Tensor = output.to(input.dtype)
        return normalized

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        """Ranks weigh their losses differently where their shares differ and `context.backward` was not used: sums are of
        gradients with these weights, as in the sum of the parameters' gradients."""
        input, weight, mean, inverse = ctx.saved_tensors
        link: Link = ctx.link
        channels, factor = input.shape[1], link.factor()
        kind = torch.promote_types(input.dtype, torch.float32)
        given = gradient.to(kind)
        normalized = (input.to(kind) - _over_channels(mean, input).to(kind)) * _over_channels(inverse, input).to(kind)
        axes = [axis for axis in range(input.dim()) if axis != 1]
        own = torch.cat([given.sum(axes, dtype=torch.float64), (given * normalized).sum(axes, dtype=torch.float64)])
        of_bias, of_weight = own[:channels].to(weight.dtype), own[channels:].to(weight.dtype)
        sums = link.sum(own * factor)
        if not ctx.has_records or factor == 0:
            return torch.zeros_like(input), of_weight, of_bias, None, None, None, None
        means = sums / (ctx.count * factor)
        first, second = _over_channels(means[:channels], input).to(kind), _over_channels(means[channels:], input).to(kind)
        scale = _over_channels(weight.double() * inverse, input).to(kind)
        of_input = scale * (given - first - normalized * second)
        return of_input.to(input.dtype), of_weight, of_bias, None, None, None, None


def _over_channels(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.view(1, -1, *([1] * (like.dim() - 2)))
