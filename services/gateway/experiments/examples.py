"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

CONFIG = """\
name: digits
entrypoint: model_def:Trial
hyperparameters:
  learning_rate: {type: log, minval: -4, maxval: -1}
searcher: {name: asha, metric: accuracy, smaller_is_better: false, max_length: {epochs: 16}, max_trials: 64}
"""
BODIES: dict[str, Any] = {
    "PATCH /experiments/{experiment_id}": {"priority": 60, "max_slots": 8},
    "POST /experiments/{experiment_id}/continue": {"overrides": {"searcher": {"max_length": {"epochs": 40}}}},
    "PATCH /experiments/{experiment_id}/description": {"name": "lenet, wide", "labels": ["paper"]},
    "POST /experiments/{experiment_id}/fork": {"overrides": {"hyperparameters": {"batch_size": 128}}},
    "POST /experiments/{experiment_id}/operations": {
        "searcher": "my_search.py:MySearch",
        "cause_id": "01980000-0000-7000-8000-000000000000",
        "operations": [{"kind": "stop", "trial": 3}],
    },
    "PUT /experiments/{experiment_id}/project": {"project": "vision"},
    "POST /experiments/{experiment_id}/reproduce": {"trial_id": "3-7"},
    "POST /jobs/{experiment_id}/move": {"ahead_of": 7},
    "POST /preview": {"config": CONFIG, "overrides": ["searcher.max_trials"]},
    "PUT /workspaces/{workspace}/rules": {"rules": [{"on": "trial", "states": ["failed"], "do": "pause"}]},
}
ANSWERS: dict[str, Any] = {
    "POST /experiments": {"id": 3, "position": 120, "rungs": "1, 4, 16 epochs; at most 64 trials"},
    "POST /experiments/{experiment_id}/fork": {"id": 4, "position": 160},
    "POST /experiments/{experiment_id}/continue": {"id": 5, "position": 200},
    "POST /experiments/{experiment_id}/reproduce": {"id": 6, "position": 240},
    "POST /experiments/{experiment_id}/pause": {"id": 3, "changed": True},
    "POST /experiments/{experiment_id}/resume": {"id": 3, "changed": True},
    "POST /experiments/{experiment_id}/cancel": {"id": 3, "changed": True},
    "POST /experiments/{experiment_id}/kill": {"id": 3, "changed": True},
}
