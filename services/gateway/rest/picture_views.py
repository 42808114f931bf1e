"""Answers that pictures are drawn from: importance of hyperparameters, spark lines, and the files of a model directory."""

from __future__ import annotations

from tenuto.schemas.base import Model


class ImportanceView(Model):
    name: str
    """A nested hyperparameter's has dots."""
    importance: float
    """Part of the metric's variance, of 1 in all, that it explains by itself. The rest are effects of several together."""


class ImportancesView(Model):
    method: str
    metric: str
    compared: int
    """Trials that it was found from."""
    more: bool
    """True: there are more trials with a metric."""
    importances: tuple[ImportanceView, ...]
    """The most important first."""
    left_out: tuple[str, ...]
    """Hyperparameters that are the same in all trials, that some trials lack, or that differ in each like a name."""


class SparkView(Model):
    experiment_id: int
    batches: tuple[int, ...]
    values: tuple[float, ...]
    """The searcher's metric of the best trial, thinned out."""


class ContextFileView(Model):
    path: str
    size_bytes: int


class ContextFilesView(Model):
    context_hash: str
    files: tuple[ContextFileView, ...]
    more: bool
    """True: there are more files than are listed."""


class ContextFileContent(Model):
    path: str
    size_bytes: int
    text: str | None
    """Null: the file is no text."""
    cut: bool
    """True: the text is only the file's beginning."""
