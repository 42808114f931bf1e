"""Batch normalization with the statistics of all ranks' records (Ioffe and Szegedy 2015; over several devices: Peng et al.,
MegDet, 2018, section 3.3), `distributed: {sync_batch_norm: true}`.

torch's SyncBatchNorm is not used: it refuses CPUs, and it counts the records of a rank whose share of the batch is empty, which
computes with weight 0. Means and variances are combined as in Chan et al., Updating formulae and a pairwise algorithm for
computing sample variances, 1979, in double precision, so that N ranks have the statistics of one up to the rounding of a float.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch.distributed.ranks import Ranks

_LINK = "_tenuto_statistics"


class Link:
    """Connection of such a layer to the trial. Copies of a model, such as averaged ones, share it."""

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
    """Synchronizes every layer of batch normalization in the model, whose modules, names and parameters stay the same."""
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
    """Mixin that is put before the class of a layer."""

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
    """Mean and biased variance by channel over all ranks, combined in double precision, and the number of values in each."""
    size, rank, channels = link.ranks.size, link.ranks.rank, input.shape[1]
    each = torch.zeros(size, 2 * channels + 1, dtype=torch.float64, device=input.device)
    if link.counts():
        # In two passes: as exact as torch.var_mean, which takes 20 times as long on a CPU.
        values, axes, own_count = input.to(_kind(input)), _others(input), input.numel() // channels
        mean = values.sum(axes) / own_count
        variance = (values - _over_channels(mean, input)).square_().sum(axes) / own_count
        each[rank, :channels], each[rank, channels:-1], each[rank, -1] = mean, variance, own_count
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
        kind = _kind(input)
        scale = (weight.double() * inverse).to(kind)
        # torch's kernel for given statistics; the square root is in `scale`, so the variance it is told is 1.
        output = nn.functional.batch_norm(input.to(kind), mean.to(kind), torch.ones_like(scale), scale, bias.to(kind), eps=0.0)
        return output.to(input.dtype)

    @staticmethod
    @once_differentiable  # gradients of gradients would have to be summed over the ranks, too
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        """Gradients of the layer. Ranks weight their losses differently if their shares differ and `context.backward` was not
        used: sums are of gradients with these weights, as in the sum of the parameters' gradients."""
        input, weight, mean, inverse = ctx.saved_tensors
        link: Link = ctx.link
        channels, factor = input.shape[1], link.factor()
        kind = _kind(input)
        given = gradient.to(kind)
        centered = input.to(kind) - _over_channels(mean, input).to(kind)
        axes = _others(input)
        own = torch.cat([given.sum(axes).double(), (given * centered).sum(axes).double() * inverse])
        of_bias, of_weight = own[:channels].to(weight.dtype), own[channels:].to(weight.dtype)
        sums = link.sum(own * factor)
        if not ctx.has_records or factor == 0:
            return torch.zeros_like(input), of_weight, of_bias, None, None, None, None
        means = sums / (ctx.count * factor)
        scale = weight.double() * inverse
        # scale * (given - means[first half] - centered * inverse * means[second half]), with few passes over the memory
        constant, slope = -scale * means[:channels], -scale * inverse * means[channels:]
        of_input = centered.mul_(_over_channels(slope, input).to(kind)).add_(_over_channels(constant, input).to(kind))
        of_input.addcmul_(given, _over_channels(scale, input).to(kind))
        return of_input.to(input.dtype), of_weight, of_bias, None, None, None, None


def _kind(input: torch.Tensor) -> torch.dtype:
    """Type of values computed from the input one by one."""
    return torch.promote_types(input.dtype, torch.float32)


def _others(input: torch.Tensor) -> list[int]:
    """Dimensions except that of the channels."""
    return [axis for axis in range(input.dim()) if axis != 1]


def _over_channels(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.view(1, -1, *([1] * (like.dim() - 2)))
