"""Fits the surrogate of the trained curves: `python benchmarks/curves/surrogate.py`. A minute. Reads beside itself, and writes
there without --out.

Five networks (2 hidden layers of 64, tanh) from the hyperparameters in the unit cube to the whole curve of errors (logit). One
configuration in ten is held out to say how good it is: Kendall's tau between true and predicted order, at each length.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from figures import figure, parse
from search_quality_problems import CURVES, TrainedFile

NETWORKS, HIDDEN, STEPS, BATCH = 5, 64, 4_000, 256


def fit(x: torch.Tensor, y: torch.Tensor, steps: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(x.shape[1], HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, y.shape[1])]
    weights: list[torch.Tensor] = []
    for rows, columns in shapes:
        weights += [torch.randn(NETWORKS, rows, columns, generator=generator) / rows**0.5, torch.zeros(NETWORKS, 1, columns)]
    for weight in weights:
        weight.requires_grad_()
    optimizer = torch.optim.AdamW(weights, lr=5e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        chosen = torch.randint(len(x), (NETWORKS, BATCH), generator=generator)
        loss = torch.nn.functional.smooth_l1_loss(predict(weights, x[chosen]), y[chosen], beta=0.3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return [weight.detach() for weight in weights]


def predict(weights: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Logits [networks, rows, lengths]; x is [networks or 1, rows, hyperparameters]."""
    for index in range(0, len(weights), 2):
        x = x @ weights[index] + weights[index + 1]
        if index + 2 < len(weights):
            x = torch.tanh(x)
    return x


def main() -> None:
    from scipy.stats import kendalltau

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=CURVES / "fashion_mlp_surrogate.npz")
    given = parse(parser, steps=5)
    torch.set_num_threads(1)
    file = TrainedFile.read(CURVES / "fashion_mlp.npz")
    x = torch.from_numpy(file.places.astype(np.float32)) * 2 - 1
    y = torch.logit(torch.from_numpy(file.errors.astype(np.float32)).clamp(0.01, 0.95))
    held = torch.arange(len(x)) % 10 == 0
    checked = torch.sigmoid(predict(fit(x[~held], y[~held], given.steps), x[held][None])).mean(0)
    for index in (0, 3, 7, len(file.lengths) - 1):
        tau = kendalltau(checked[:, index], file.errors[held.numpy(), index]).statistic
        off = (checked[:, index] - torch.from_numpy(file.errors[held.numpy(), index])).abs().median()
        print(f"{file.lengths[index]:5d} steps: Kendall's tau {tau:.3f}, median deviation {off:.4f} on held-out configurations")
        figure(f"Kendall's tau at {file.lengths[index]} steps", float(tau), "")
    weights = {f"w{index}": weight.numpy().astype(np.float16) for index, weight in enumerate(fit(x, y, given.steps))}
    np.savez_compressed(given.out, **weights)


if __name__ == "__main__":
    main()
