"""A loop with Hugging Face's accelerate as a trial: a small network on scikit-learn's digits. Killed at any moment, it ends with
the bits of one that was left alone.

In a cluster: tenuto exp create config.yaml . --follow
By hand:      python train.py
"""

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tenuto

VALIDATION_EVERY = 5
"""Each fifth image is kept for validation."""


class Progress:
    """What the loop itself counts; accelerate saves it with the rest, because it is registered."""

    def __init__(self) -> None:
        self.steps, self.loss_sum, self.losses = 0, 0.0, 0

    def state_dict(self) -> dict:
        return dict(vars(self))

    def load_state_dict(self, state: dict) -> None:
        vars(self).update(state)


def data_sets() -> tuple[TensorDataset, TensorDataset]:
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    held_out = torch.arange(len(labels)) % VALIDATION_EVERY == 0
    return TensorDataset(images[~held_out], labels[~held_out]), TensorDataset(images[held_out], labels[held_out])


def main() -> None:
    torch.use_deterministic_algorithms(True)
    with tenuto.init("config.yaml", hyperparameters={"learning_rate": 0.01}) as run:
        set_seed(run.trial_seed % 2**32)
        training, validation = data_sets()
        batch_size = run.hyperparameters["batch_size"]
        # The order of an epoch follows from its number, so it is the same after a resume.
        order = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=run.trial_seed % 2**32)
        accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=order)
        model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
        optimizer = torch.optim.AdamW(model.parameters(), lr=run.hyperparameters["learning_rate"])
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
        # Generators of their own: to begin a pass draws from them, and not from the one that dropout draws from.
        loader = DataLoader(training, batch_size, shuffle=True, drop_last=True, generator=torch.Generator())
        model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
        held_out = accelerator.prepare(DataLoader(validation, 64, generator=torch.Generator()))
        progress = Progress()
        accelerator.register_for_checkpointing(progress)
        run.epoch_batches = len(loader)

        def save() -> None:
            with run.checkpoint.save(progress.steps, shard=True) as directory:  # each rank has generators of its own
                accelerator.save_state(str(directory))  # model, optimizer, scheduler, generators, and the progress

        def accuracy() -> float:
            model.eval()
            with torch.no_grad():
                guesses = [accelerator.gather_for_metrics((model(x).argmax(1), y)) for x, y in held_out]
            model.train()
            return float(torch.cat([guess == truth for guess, truth in guesses]).float().mean())

        if run.checkpoint.latest is not None:
            with run.checkpoint.restore() as directory:
                accelerator.load_state(str(directory))

        def batches():
            """Batches from the present place on, epoch after epoch."""
            while True:
                epoch, position = divmod(progress.steps, run.epoch_batches)
                loader.set_epoch(epoch)
                yield from accelerator.skip_first_batches(loader, position) if position else loader

        data = batches()
        for operation in run.operations():
            while progress.steps < operation.steps and not run.should_preempt():
                images, labels = next(data)
                loss = nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                progress.steps += 1
                progress.losses += 1
                progress.loss_sum += loss.item()
                if run.should_report(progress.steps):
                    run.report_training(progress.steps, {"loss": progress.loss_sum / progress.losses})
                    progress.loss_sum, progress.losses = 0.0, 0
                if run.should_save(progress.steps) and progress.steps < operation.steps:
                    save()
            save()  # before the validation: a search that reacts to it may count on the checkpoint
            if progress.steps == operation.steps:
                run.report_validation(progress.steps, {"accuracy": accuracy()})


if __name__ == "__main__":
    main()
