"""The digits example with a pause in each batch: a trial that only has to be running leaves the processors to others."""

import time
from typing import Any

from model_def import DigitsTrial

PAUSE_SECONDS = 0.05


class UnhurriedTrial(DigitsTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        time.sleep(PAUSE_SECONDS)
        return super().train_batch(batch, epoch_idx, batch_idx)
