"""Why a rule of an experiment acts: the numbers that its trigger compared, told as where there is a notice about them. What it
does then is in the event itself."""

from __future__ import annotations

from tenuto.schemas.events.automation import ExperimentRuleActed
from tenuto.schemas.sentences import notices
from tenuto.schemas.sentences.rules import rule

for _kind in (
    notices.Recorded,
    notices.ExperimentEnded,
    notices.TrialEnded,
    notices.MetricBeyond,
    notices.MetricStalled,
    notices.LineMatched,
    notices.DamagedCheckpoint,
    notices.SlowRank,
):
    rule(ExperimentRuleActed.TYPE, *_kind.RULES)(_kind)
