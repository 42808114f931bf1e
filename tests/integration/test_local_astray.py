"""`tenuto exp create --local --test` names the attribute in which a resumed trial goes astray."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_local_runs import LINE, create

STRAYING = """\
import decimal
from model_base import LineTrial

class Straying(LineTrial):
    def __init__(self, context):
        super().__init__(context)
        self.words = decimal.Context(prec=5)
        self.drift = 0.0

    def train_batch(self, batch, epoch_idx, batch_idx):
        self.words.prec += 1
        self.drift += self.words.prec / 100
        inputs, targets = batch
        return super().train_batch((inputs, targets + self.drift), epoch_idx, batch_idx)
"""


def test_the_test_names_the_attribute_in_which_a_resumed_trial_goes_astray(tmp_path: Path) -> None:
    """Inside another library's object no checkpoint looks, so nothing is said before."""
    model = tmp_path / "m"
    model.mkdir()
    (model / "model_base.py").write_text((LINE / "model_def.py").read_text())
    (model / "model_def.py").write_text(STRAYING)
    code, said = create(tmp_path, LINE / "config.yaml", "m", "--test", "-s", "entrypoint=model_def:Straying")
    assert code == 2, said
    [problem] = [line for line in said.splitlines() if line.startswith("PROBLEM")]
    assert "its weights are not those of the trial that went on" in problem
    assert "different by then: self.drift" in problem
    assert "not looked into: self.words (Context, set in model_def.py:7)" in problem
