"""Independent draws, each trained to the full length (Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization",
JMLR 13, 2012)."""

from __future__ import annotations

from tenuto.schemas.config import RandomSearcher
from tenuto.services.searcher.methods.full_length import FullLength


class Random(FullLength[RandomSearcher]):
    @property
    def trials_max(self) -> int:
        return self.settings.max_trials

    @property
    def concurrent_trials_max(self) -> int:
        return self.settings.max_concurrent_trials
