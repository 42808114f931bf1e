"""A GAN on scikit-learn's 8x8 digits: two models, two optimizers, each with its own step in one `train_batch`.

Goodfellow et al., Generative Adversarial Nets (2014), with the loss that does not saturate (section 3). What the search
compares is the Fréchet distance of Heusel et al. (2017), on pixels instead of a network's features: an image has 64 of them.
"""

from collections.abc import Mapping
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tenuto import pytorch

PIXELS = 64
HIDDEN = 128
VALIDATION_EVERY = 4
"""Each fourth image is kept to compare with."""


def frechet_distance(ours: Tensor, theirs: Tensor) -> Tensor:
    """Between the Gaussians fitted to two sets of images, each of shape (images, pixels)."""
    first, second = torch.cov(ours.T), torch.cov(theirs.T)
    # The trace of a product's square root, from its eigenvalues, which are real and not negative but for rounding.
    root = torch.linalg.eigvals(first @ second).real.clamp(min=0).sqrt().sum()
    return (ours.mean(0) - theirs.mean(0)).square().sum() + first.trace() + second.trace() - 2 * root


class Best(pytorch.PyTorchCallback):
    """Remembers the best distance of the trial; it goes into every checkpoint, so an interrupted trial remembers it too."""

    def __init__(self) -> None:
        self.distance = float("inf")

    def on_validation_end(self, metrics: Mapping[str, float]) -> None:
        if metrics["frechet_distance"] < self.distance:
            self.distance = metrics["frechet_distance"]
            print(f"best distance so far: {self.distance:.3f}")

    def state_dict(self) -> Mapping[str, Any]:
        return {"distance": self.distance}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.distance = state["distance"]


class DigitsGAN(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.noise_size = context.get_hparam("noise_size")
        self.generator = context.wrap_model(
            nn.Sequential(
                nn.Linear(self.noise_size, HIDDEN),
                nn.BatchNorm1d(HIDDEN),
                nn.ReLU(),
                nn.Linear(HIDDEN, HIDDEN),
                nn.BatchNorm1d(HIDDEN),
                nn.ReLU(),
                nn.Linear(HIDDEN, PIXELS),
                nn.Sigmoid(),
            )
        )
        self.discriminator = context.wrap_model(
            nn.Sequential(
                nn.Linear(PIXELS, HIDDEN),
                nn.LeakyReLU(0.2),
                nn.Dropout(0.2),
                nn.Linear(HIDDEN, HIDDEN),
                nn.LeakyReLU(0.2),
                nn.Linear(HIDDEN, 1),
            )
        )
        self.generator_optimizer, self.discriminator_optimizer = (
            context.wrap_optimizer(torch.optim.Adam(model.parameters(), context.get_hparam(rate), betas=(0.5, 0.999)))
            for model, rate in (
                (self.generator, "generator_learning_rate"),
                (self.discriminator, "discriminator_learning_rate"),
            )
        )
        images = torch.tensor(load_digits().images, dtype=torch.float32).flatten(1) / 16
        held_out = torch.arange(len(images)) % VALIDATION_EVERY == 0
        self.training, self.validation = TensorDataset(images[~held_out]), TensorDataset(images[held_out])

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"best": Best()}

    def build_training_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(self.training, self.context.get_hparam("batch_size"), shuffle=True, drop_last=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(self.validation, batch_size=128)

    def make(self, count: int) -> Tensor:
        images: Tensor = self.generator(torch.randn(count, self.noise_size, device=self.context.device))
        return images

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Tensor]:
        (real,) = batch
        made = self.make(len(real))

        judge = nn.functional.softplus  # softplus(-x) is the loss of calling x real, softplus(x) of calling it made
        found_out = judge(-self.discriminator(real)).mean() + judge(self.discriminator(made.detach())).mean()
        self.context.backward(found_out)
        self.context.step_optimizer(self.discriminator_optimizer)

        self.discriminator.requires_grad_(False)  # the generator's loss trains the generator only
        fooled = judge(-self.discriminator(made)).mean()
        self.context.backward(fooled)
        self.context.step_optimizer(self.generator_optimizer)
        self.discriminator.requires_grad_(True)
        return {"discriminator_loss": found_out, "generator_loss": fooled}

    def evaluate_full_dataset(self, data_loader: pytorch.DataLoader[Any]) -> dict[str, Tensor]:
        real = torch.cat([images for (images,) in data_loader])
        return {"frechet_distance": frechet_distance(self.make(len(real)).float().cpu(), real)}
