"""Hugging Face's Trainer under the search: `from tenuto import huggingface`, then `huggingface.train(trainer, run)`."""

from tenuto.workers.integrations.huggingface import TenutoCallback, train

__all__ = ["TenutoCallback", "train"]
