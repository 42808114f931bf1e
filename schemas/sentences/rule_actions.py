"""Reason why a rule of an experiment acts: the numbers that its trigger compared, in the words of a notice about them. The
event itself has the action."""

from __future__ import annotations

from tenuto.schemas.events.automation import ExperimentRuleActed
from tenuto.schemas.sentences import notices
from tenuto.schemas.sentences.rules import rule

for _kind in (
    notices.EventRecorded,
    notices.ExperimentEnded,
    notices.TrialEnded,
    notices.MetricBeyond,
    notices.MetricStalled,
    notices.LineMatched,
    notices.DamagedCheckpoint,
    notices.SlowRank,
):
    rule(ExperimentRuleActed.TYPE, *_kind.RULES)(_kind)
