"""Data-parallel training as torch's documentation writes it; with Tenuto's few lines where it runs in a cluster."""

import contextlib
import os
from typing import Any

import torch
import torch.distributed as dist
from model_def import BATCH, Clock, make_data, make_model
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

STEPS = int(os.environ.get("STEPS", "200"))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    clock = Clock(rank)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = make_data()
    loader = DataLoader(data, batch_size=BATCH // size, sampler=DistributedSampler(data))
    with our_run() as run:
        step = 0
        while step < STEPS:
            for images, labels in loader:
                clock.tick(step)
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if run is not None and run.should_report(step):
                    run.report_training(step, {"loss": loss})
                if step >= STEPS or (run is not None and run.should_preempt()):
                    break
        if run is not None:
            run.report_validation(step, {"loss": float(loss)})


def our_run() -> Any:
    if "TENUTO_AGENT_ADDRESS" not in os.environ:
        return contextlib.nullcontext()
    import tenuto

    return tenuto.init()


if __name__ == "__main__":
    main()
