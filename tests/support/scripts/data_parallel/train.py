"""Trains as a script for torchrun does, with a few lines for the search: the environment says who this rank is."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tenuto

STEPS = 30


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with tenuto.init() as run:
        assert (run.rank, run.slots) == (rank, size)
        step = 0
        if run.checkpoint.latest is not None:
            with run.checkpoint.restore() as directory:
                saved = torch.load(directory / "state.pt")
            model.module.load_state_dict(saved["model"])
            step = run.checkpoint.latest.steps
        for operation in run.operations():
            while step < operation.steps:
                inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(1000 * step + rank))
                loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                hold(rank, step)
                if run.should_report(step):
                    run.report_training(step, {"loss": loss})
                if run.should_preempt():
                    with run.checkpoint.save(step) as directory:
                        torch.save({"model": model.module.state_dict()}, directory / "state.pt")
                    print(f"rank {rank} leaves at {step}", file=sys.stderr)
                    return
            if rank == 0:
                run.report_validation(step, {"weight": model.module.weight.double().sum().item()})


def hold(rank: int, step: int) -> None:
    if os.environ.get("TEST_HOLD") == f"{rank} {step}":
        Path(os.environ["TEST_HELD"]).touch()
        while not Path(os.environ["TEST_GO"]).exists():
            time.sleep(0.01)
    if "TEST_HOLD" in os.environ:
        time.sleep(0.02)  # the word to leave comes long before the end


if __name__ == "__main__":
    main()
