"""ASHA in several brackets at once, which hedges between comparing early and comparing late.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, https://arxiv.org/abs/1810.05934, section 3.3:
asynchronous Hyperband loops over brackets of ASHA with different minimum lengths. Which brackets there are is named as users of
Determined know it (`mode`), and so is how trials are shared out: see `adaptive_brackets` of
`schemas/config/rungs.py`. A bracket's rungs are its own.
"""

from __future__ import annotations

from tenuto.schemas.config import AdaptiveAshaSearcher
from tenuto.services.searcher.methods.asha import Asha


class AdaptiveAsha(Asha):
    @property
    def stops(self) -> bool:
        assert isinstance(self.settings, AdaptiveAshaSearcher)
        return self.settings.stop_once

    @property
    def first_waits(self) -> bool:
        return False  # `stop_once` promises that no trial is paused, and brackets compare many of the first ones anyway
