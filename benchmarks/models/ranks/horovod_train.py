"""Data-parallel training as Horovod's documentation writes it; with Tenuto's few lines where it runs in a cluster."""

import contextlib
import os
from typing import Any

import horovod.torch as hvd  # type: ignore[import-not-found]
import torch
from model_def import BATCH, Clock, make_data, make_model
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

STEPS = int(os.environ.get("STEPS", "200"))


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    clock = Clock(hvd.rank())
    model = make_model()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters())
    data = make_data()
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(data, batch_size=BATCH // hvd.size(), sampler=sampler)
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
