"""Independent draws, each trained to the full length (Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization",
JMLR 13, 2012)."""

from __future__ import annotations

from tenuto.schemas.config import RandomSearcher
from tenuto.services.searcher.methods.base import Rules


class Random(Rules[RandomSearcher]):
    """All of it is in `Rules`."""
