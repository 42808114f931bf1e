"""A Horovod script as its users have written them, with reports to Tenuto."""

import horovod.torch as hvd
import torch

import tenuto

hvd.init()
torch.manual_seed(hvd.rank())  # different weights and data: the broadcast and the averages make up for it
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
with tenuto.init() as run:
    steps = 0
    for operation in run.operations():
        while steps < operation.steps:
            x = torch.randn(8, 4)
            loss = ((model(x) - x.sum(dim=1, keepdim=True)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
        weights = hvd.allgather(model.weight.detach())
        spread = float((weights - weights[0]).abs().max())
        run.report_validation(steps, {"loss": float(loss), "ranks": hvd.size(), "spread": spread})
