"""One trial with the given hyperparameters. A range in the configuration is drawn from once, by the experiment's seed."""

from __future__ import annotations

from tenuto.schemas.config import SingleSearcher
from tenuto.services.searcher.methods.base import Rules


class Single(Rules[SingleSearcher]):
    @property
    def trials_max(self) -> int:
        return 1

    @property
    def concurrent_trials_max(self) -> int:
        return 1

    @property
    def replaces(self) -> bool:
        return False
