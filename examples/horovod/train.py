"""A Horovod script under the search: what horovodrun starts elsewhere, Tenuto starts here (`distributed: {strategy: horovod}`).

make horovod                                     # once: Horovod has no wheel
tenuto exp create config.yaml . --follow         # on two slots
"""

import horovod.torch as hvd
import torch
from torch import nn

import tenuto

RECORDS = 600


def points(seed):
    """Points in and outside a circle."""
    xy = torch.rand(RECORDS, 2, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return xy, (xy.norm(dim=1, keepdim=True) < 0.8).float()


def main():
    hvd.init()
    with tenuto.init() as run:
        torch.manual_seed(run.trial_seed)
        batch_size = run.hyperparameters["batch_size"]
        run.epoch_batches = epoch_steps = RECORDS // (batch_size * hvd.size())
        model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
        adam = torch.optim.Adam(model.parameters(), lr=run.hyperparameters["learning_rate"])
        # Before its state is loaded: Horovod makes a new optimizer, without the old one's state.
        optimizer = hvd.DistributedOptimizer(adam, named_parameters=model.named_parameters())
        steps = 0
        if run.checkpoint.latest is not None:
            with run.checkpoint.restore() as directory:  # each rank reads it
                state = torch.load(directory / "state.pt")
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            steps = run.checkpoint.latest.steps
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        (xy, inside), (test_xy, test_inside) = points(1), points(2)

        def save():
            with run.checkpoint.save(steps) as directory:  # every rank calls it; what rank 0 writes counts
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, directory / "state.pt")

        for operation in run.operations():
            while steps < operation.steps and not run.should_preempt():
                epoch, position = divmod(steps, epoch_steps)
                order = torch.randperm(RECORDS, generator=torch.Generator().manual_seed(epoch))
                mine = order[position * hvd.size() + hvd.rank() :: epoch_steps * hvd.size()][:batch_size]
                loss = nn.functional.binary_cross_entropy_with_logits(model(xy[mine]), inside[mine])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps += 1
                if run.should_report(steps):
                    run.report_training(steps, {"loss": loss})
                if run.should_save(steps) and steps < operation.steps:
                    save()
            save()
            if steps == operation.steps:
                guess = model(test_xy) > 0
                run.report_validation(steps, {"accuracy": (guess == (test_inside > 0.5)).float().mean()})


if __name__ == "__main__":
    main()
