"""Softmax regression on scikit-learn's digits, in plain NumPy. Nothing in it knows how it is searched."""

import numpy as np
from sklearn.datasets import load_digits

import tenuto

VALIDATION_EVERY = 5
"""Each fifth image is kept for validation."""


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    images = np.hstack([images / 16, np.ones((len(images), 1))])
    held_out = np.arange(len(images)) % VALIDATION_EVERY == 0
    training, answers = images[~held_out], np.eye(10)[labels[~held_out]]

    with tenuto.init("config.yaml") as run:
        batch_size = run.hyperparameters["batch_size"]
        run.epoch_batches = epoch_steps = len(training) // batch_size
        weights, steps = np.zeros((images.shape[1], 10)), 0
        if run.checkpoint.latest is not None:
            with run.checkpoint.restore() as directory:
                weights, steps = np.load(directory / "weights.npy"), run.checkpoint.latest.steps
        for operation in run.operations():
            while steps < operation.steps and not run.should_preempt():
                first = steps % epoch_steps * batch_size
                batch, truth = training[first : first + batch_size], answers[first : first + batch_size]
                weights -= run.hyperparameters["learning_rate"] * batch.T @ (softmax(batch @ weights) - truth) / batch_size
                steps += 1
            accuracy = float(((images[held_out] @ weights).argmax(axis=1) == labels[held_out]).mean())
            with run.checkpoint.save(steps, {"accuracy": accuracy}) as directory:
                np.save(directory / "weights.npy", weights)
            if steps == operation.steps:
                run.report_validation(steps, {"accuracy": accuracy})


if __name__ == "__main__":
    main()
