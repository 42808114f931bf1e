"""The state as bytes and back: for snapshots, and to compare two states byte for byte."""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import Any

from immutables import Map
from pydantic import TypeAdapter

from tenuto.schemas.config import Hyperparameters, Searcher
from tenuto.services.searcher.methods.sampling import Space
from tenuto.services.searcher.state import Asked, Experiment, Place, SearcherState, Trial, TrialStatus
from tenuto.services.searcher.state.ladder import Bracket, flat_lengths, last_rungs, promotion_order
from tenuto.services.searcher.state.ranking import Ranking, Rung

_CODES: dict[TrialStatus, str] = {"running": "r", "reported": "d", "failing": "f", "invalid": "i", "paused": "p", "stopped": "s"}
_STATUSES: dict[str, TrialStatus] = {code: status for status, code in _CODES.items()}
SEARCHER: TypeAdapter[Searcher] = TypeAdapter(Searcher)
SPACE: TypeAdapter[Hyperparameters] = TypeAdapter(Hyperparameters)


def dump(state: SearcherState) -> bytes:
    """Canonical JSON bytes. Settings and space are strings inside it, because the order of their keys must survive."""
    experiments = [_experiment_to_json(experiment) for _, experiment in sorted(state.experiments.items())]
    return json.dumps({"experiments": experiments}, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def load(data: bytes) -> SearcherState:
    experiments = [_experiment_from_json(item) for item in json.loads(data)["experiments"]]
    return SearcherState(Map({experiment.id: experiment for experiment in experiments}))


_PLAIN = (
    "id",
    "seed",
    "trials_max",
    "concurrent_trials_max",
    "rule_version",
    "requested",
    "active",
    "paused",
    "failed",
    "invalid",
    "remembers",
    "replaces",
    "trials_ceiling",
    "concurrent_ceiling",
    "validated",
    "metric_seen",
    "best_trial",
    "best_score",
    "canceling",
    "last_error",
)


def _experiment_to_json(experiment: Experiment) -> dict[str, Any]:
    plain = {name: getattr(experiment, name) for name in _PLAIN}
    return (
        plain
        | _custom_to_json(experiment)
        | _places_to_json(experiment)
        | {
            "settings": SEARCHER.dump_json(experiment.settings).decode(),
            "space": SPACE.dump_json(experiment.space).decode(),
            "brackets": [[bracket.trials, bracket.lengths] for bracket in experiment.brackets],
            "memory": [[number, text] for number, text in sorted(experiment.memory.items())],
            "objectives": [[number, scores] for number, scores in sorted(experiment.objectives.items())],
            "metric_names": experiment.metric_names,
            "trials": [_trial_to_json(trial) for _, trial in sorted(experiment.trials.items())],
            "rungs": [_rung_to_json(rung) for rung in experiment.rungs],
        }
    )


def _trial_to_json(trial: Trial) -> list[Any]:
    bare = trial.own_target is None and trial.place is None and not trial.recent
    more: list[Any] = [] if bare else [trial.own_target]
    if trial.place is not None or trial.recent:
        more.append(None if trial.place is None else astuple(trial.place))
    if trial.recent:
        more.append(trial.recent)
    return [trial.number, trial.rung, _CODES[trial.status], trial.score, trial.checkpoint_id, *more]


def _trial_from_json(item: list[Any]) -> Trial:
    place = Place(*item[6]) if len(item) > 6 and item[6] is not None else None
    recent = tuple((int(batches), float(score)) for batches, score in item[7]) if len(item) > 7 else ()
    score, checkpoint_id, own_target = (*item[3:6], None)[:3]
    return Trial(item[0], item[1], _STATUSES[item[2]], score, checkpoint_id, own_target, place, recent)


def _places_to_json(experiment: Experiment) -> dict[str, Any]:
    if not experiment.keeps_places:
        return {}
    return {
        "keeps_places": True,
        "vacant": [astuple(place) for place in experiment.vacant],
        "replacements": experiment.replacements,
    }


def _custom_to_json(experiment: Experiment) -> dict[str, Any]:
    if experiment.settings.name != "custom":
        return {}
    return {
        "creations": [astuple(asked) for asked in experiment.creations],
        "extensions": [[number, astuple(asked)] for number, asked in experiment.extensions],
        "ending": experiment.ending,
    }


def _experiment_from_json(item: dict[str, Any]) -> Experiment:
    brackets = tuple(Bracket(trials, tuple(lengths)) for trials, lengths in item["brackets"])
    return Experiment(
        **{name: item[name] for name in _PLAIN},
        settings=SEARCHER.validate_json(item["settings"]),
        space=Space(SPACE.validate_json(item["space"])),
        brackets=brackets,
        lengths=flat_lengths(brackets),
        lasts=last_rungs(brackets),
        order=promotion_order(brackets),
        memory=Map(dict(item["memory"])),
        objectives=Map({number: tuple(scores) for number, scores in item["objectives"]}),
        metric_names=tuple(item["metric_names"]),
        trials=Map({t[0]: _trial_from_json(t) for t in item["trials"]}),
        keeps_places=item.get("keeps_places", False),
        vacant=tuple(Place(*place) for place in item.get("vacant", ())),
        replacements=item.get("replacements", 0),
        creations=tuple(Asked(*asked) for asked in item.get("creations", ())),
        extensions=tuple((number, Asked(*asked)) for number, asked in item.get("extensions", ())),
        ending=item.get("ending"),
        rungs=tuple(
            Rung(r[0], r[1], _ranking(r[2]), _ranking(r[3]), r[4], r[5], *(_numbered(lost) for lost in r[6:]))
            for r in item["rungs"]
        ),
    )


def _rung_to_json(rung: Rung) -> list[Any]:
    lost = [[number for _, number in rung.lost]] if len(rung.lost) else []
    return [rung.best_max, rung.size, list(rung.best), list(rung.waiting), rung.started, rung.entered, *lost]


def _numbered(numbers: list[int]) -> Ranking:
    return Ranking.of((0.0, number) for number in numbers)


def _ranking(keys: list[list[Any]]) -> Ranking:
    return Ranking.of((float(score), int(number)) for score, number in keys)
