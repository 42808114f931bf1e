"""Does a resumed trial have the bits of an uninterrupted one, with gradients averaged by torch's DistributedDataParallel, and by
Tenuto's own averaging?

    python benchmarks/ddp_resume.py [--ranks 3] [--steps 6]

Real processes, gloo on CPUs. Each trains so many steps in one go; then again from the state at half of them, with a new wrapper
as a new process has it. DistributedDataParallel puts gradients into other buckets after its first step, so the sums of three
numbers or more are made in another order, and round otherwise. With two ranks there is only one order.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from figures import figure, parse
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tenuto.embedded.process import choose_port
from tenuto.workers.pytorch.distributed.gradients import GradientSync

WIDTH = 300
BATCH = 8


class Summing:
    """A stand-in for the ranks, with the methods that `GradientSync` calls."""

    gang = SimpleNamespace(progress=SimpleNamespace(waiting=contextlib.nullcontext))
    waiting = staticmethod(contextlib.nullcontext)

    def __init__(self) -> None:
        self.size = dist.get_world_size()

    def start_sum(self, tensor: torch.Tensor) -> Callable[[], Any]:
        work: Any = dist.all_reduce(tensor, async_op=True)
        wait: Callable[[], Any] = work.wait
        return wait


def model() -> nn.Module:
    torch.manual_seed(1)
    layers: list[nn.Module] = [nn.Linear(20, WIDTH)]
    for _ in range(5):
        layers += [nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(WIDTH, 1))


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: range, wrap: str) -> None:
    """A fresh wrapper, as after a start."""
    wrapped: nn.Module = DistributedDataParallel(net) if wrap == "ddp" else net
    sync = None
    if wrap == "tenuto":
        sync = GradientSync(Summing(), lambda: True, lambda: 1 / dist.get_world_size())  # type: ignore[arg-type]
        sync.attach(optimizer)
    for step in steps:
        if sync is not None:
            sync.prepare()
        inputs = torch.randn(BATCH, 20, generator=torch.Generator().manual_seed(1000 * step + dist.get_rank()))
        optimizer.zero_grad()
        (wrapped(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()


def different_bits(wrap: str, steps: int) -> int:
    """Weights that differ between the trial in one go and the resumed one."""
    whole = model()
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.01, momentum=0.9)
    train(whole, optimizer, range(steps), wrap)
    before = model()
    optimizer = torch.optim.SGD(before.parameters(), lr=0.01, momentum=0.9)
    train(before, optimizer, range(steps // 2), wrap)
    saved = copy.deepcopy((before.state_dict(), optimizer.state_dict()))
    resumed = model()
    resumed.load_state_dict(saved[0])
    optimizer = torch.optim.SGD(resumed.parameters(), lr=0.01, momentum=0.9)
    optimizer.load_state_dict(saved[1])
    train(resumed, optimizer, range(steps // 2, steps), wrap)
    pairs = zip(whole.parameters(), resumed.parameters(), strict=True)
    return sum(int((one != other).sum()) for one, other in pairs)


def rank_main(rank: int, size: int, port: int, steps: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    total = sum(parameter.numel() for parameter in model().parameters())
    for wrap, name in (("ddp", "torch DistributedDataParallel"), ("tenuto", "Tenuto")):
        different = different_bits(wrap, steps)
        if rank == 0:
            print(f"{size} ranks, {name}: {different} of {total} weights differ after {steps} steps, resumed at {steps // 2}")
            bar = "none" if wrap == "tenuto" else ""
            figure(f"weights that differ, {name}, {size} ranks", different, "weights", bar=bar)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    given = parse(parser, ranks=2, steps=2)
    port = choose_port()
    # Nothing but imports was done here, so a fork is safe, and spares each rank the import of torch.
    mp.start_processes(rank_main, args=(given.ranks, port, given.steps), nprocs=given.ranks, start_method="fork")


if __name__ == "__main__":
    main()
