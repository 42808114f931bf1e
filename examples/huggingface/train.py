"""A tiny BERT, made in place, with Hugging Face's Trainer. Needs no download: words are numbers, drawn from a seed.

In a cluster: tenuto exp create config.yaml . --follow
By hand:      python train.py
"""

from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

import tenuto
from tenuto import huggingface

WORDS, LENGTH, MARKERS = 50, 16, (3, 4)


class Sentences(torch.utils.data.Dataset[dict[str, Any]]):
    """Random words; the label says which of the two markers comes more often."""

    def __init__(self, count: int, seed: int) -> None:
        numbers = np.random.default_rng(seed)
        words = numbers.integers(5, WORDS, size=(count, LENGTH))
        self.labels = numbers.integers(0, 2, size=count)
        for sentence, label in zip(words, self.labels, strict=True):
            places = numbers.choice(LENGTH, size=3, replace=False)
            sentence[places] = (MARKERS[label], MARKERS[label], MARKERS[1 - label])
        self.words = words

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": torch.tensor(self.words[index]), "labels": int(self.labels[index])}


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(axis=1) == prediction.label_ids).mean())}


def main() -> None:
    with tenuto.init("config.yaml", hyperparameters={"learning_rate": 0.002}) as run:
        seed = run.trial_seed % 2**32
        set_seed(seed)
        size = run.hyperparameters["hidden_size"]
        model = BertForSequenceClassification(
            BertConfig(vocab_size=WORDS, hidden_size=size, num_hidden_layers=1, num_attention_heads=2, intermediate_size=2 * size)
        )
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=f"output/{run.trial_id}",  # trials of one machine share the model directory
                max_steps=run.max_steps,
                per_device_train_batch_size=32,
                per_device_eval_batch_size=128,
                learning_rate=run.hyperparameters["learning_rate"],
                seed=seed,
                save_strategy="no",  # when to save and to evaluate is in config.yaml
                report_to=[],
                disable_tqdm=True,
                use_cpu=not torch.cuda.is_available(),
            ),
            train_dataset=Sentences(1024, seed=1),
            eval_dataset=Sentences(256, seed=2),
            compute_metrics=accuracy,
        )
        huggingface.train(trainer, run)


if __name__ == "__main__":
    main()
