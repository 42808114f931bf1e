"""Any loop can be a trial: softmax regression on scikit-learn's digits, in plain NumPy.

In a cluster: tenuto exp create config.yaml . --follow
By hand:      python train.py --shuffle
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import tenuto

VALIDATION_EVERY = 5
"""Each fifth image is kept for validation."""


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def main(shuffle: bool) -> None:
    images, labels = load_digits(return_X_y=True)
    images = np.hstack([images / 16, np.ones((len(images), 1))])
    held_out = np.arange(len(images)) % VALIDATION_EVERY == 0
    training, answers = images[~held_out], labels[~held_out]

    with tenuto.init("config.yaml", hyperparameters={"learning_rate": 0.3}) as run:
        batch_size = run.hyperparameters["batch_size"]
        run.epoch_batches = epoch_steps = len(training) // batch_size
        weights, steps = np.zeros((images.shape[1], 10)), 0

        def save() -> None:
            with run.checkpoint.save(steps, {"accuracy": accuracy()}) as directory:
                np.save(directory / "weights.npy", weights)

        def load(directory: Path) -> np.ndarray:
            return np.load(directory / "weights.npy")

        def accuracy() -> float:
            return float((softmax(images[held_out] @ weights).argmax(axis=1) == labels[held_out]).mean())

        if run.checkpoint.latest is not None:
            with run.checkpoint.restore() as directory:
                weights, steps = load(directory), run.checkpoint.latest.steps

        for operation in run.operations():
            while steps < operation.steps and not run.should_preempt():
                # The order follows from the trial's seed and the epoch, so a resumed trial meets the same batches.
                epoch, position = divmod(steps, epoch_steps)
                order = (
                    np.random.default_rng([run.trial_seed, epoch]).permutation(len(training))
                    if shuffle
                    else np.arange(len(training))
                )
                batch = order[position * batch_size : (position + 1) * batch_size]
                guess, truth = softmax(training[batch] @ weights), np.eye(10)[answers[batch]]
                weights -= run.hyperparameters["learning_rate"] * training[batch].T @ (guess - truth) / batch_size
                steps += 1
                if run.should_report(steps):
                    run.report_training(steps, {"loss": -np.log((guess * truth).sum(axis=1)).mean()})
                if run.should_save(steps) and steps < operation.steps:
                    save()
            save()  # before the validation: a search that reacts to it may count on the checkpoint
            if steps == operation.steps:
                run.report_validation(steps, {"accuracy": accuracy()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--shuffle", action="store_true")
    main(parser.parse_args().shuffle)
