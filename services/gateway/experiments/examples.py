"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

from tenuto.services.gateway.experiments.bodies import (
    DeletionAsked,
    OperationsRecorded,
    PreviewView,
    Submitted,
    WorkspaceRulesView,
)
from tenuto.services.gateway.experiments.views import (
    ContextFileContent,
    ContextFilesView,
    DiffView,
    ExperimentDetail,
    ExperimentView,
    ImportancesView,
    LineageView,
    MomentsView,
    ReproductionView,
    RungsView,
    SparkView,
    TrialRecordView,
)
from tenuto.services.gateway.http.examples import HASH, TIME_US, later

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
    "POST /experiments/{experiment_id}/fork": {"id": 4, "position": 160},
    "POST /experiments/{experiment_id}/continue": {"id": 5, "position": 200},
    "POST /experiments/{experiment_id}/reproduce": {"id": 6, "position": 240},
}
_MERGED: dict[str, Any] = {"name": "digits", "resources": {"priority": 60}, "searcher": {"name": "asha", "max_trials": 64}}
_LAYER = {
    "kind": "template",
    "name": "urgent",
    "workspace": "vision",
    "version": 2,
    "digest": HASH,
    "paths": ["resources.priority"],
}
_RUNGS = "1, 4, 16 epochs; at most 64 trials"
_EXPERIMENT: dict[str, Any] = {
    "id": 3,
    "name": "digits",
    "description": "",
    "labels": ["paper"],
    "user": "ada",
    "workspace": "vision",
    "state": "active",
    "method": "asha",
    "metric": "accuracy",
    "smaller_is_better": False,
    "pool": "default",
    "slots_per_trial": 1,
    "priority": 60,
    "weight": 1.0,
    "max_slots": None,
    "max_trials": 64,
    "max_concurrent_trials": 16,
    "seed": 3893876140872421614,
    "context_hash": HASH,
    "context_size_bytes": 1_820,
    "submitted_us": TIME_US,
    "ended_us": None,
    "error": None,
    "best_trial_id": "3-7",
    "best_metric": 0.97,
    "trials": {"running": 8, "completed": 4},
}
_DIFFERENCE = {
    "kind": "code",
    "effect": "likely",
    "name": "model_def.py",
    "a": "4e0349a39553",
    "b": "169012d38f73",
    "overridden": False,
    "note": "changed",
    "detail": "@@ -1,2 +1,2 @@\n class Trial:\n-    x = 1\n+    x = 2\n",
}
_RESULTS: dict[str, Any] = {
    "metric": "accuracy",
    "trial_a": "3-7",
    "trial_b": "6-1",
    "best_a": 0.97,
    "best_b": 0.97,
    "metrics": [{"batches": 469, "name": "accuracy", "a": 0.97, "b": 0.97, "equal": True}],
    "metrics_left_out": 0,
    "validations": 1,
    "first_difference_batches": None,
    "metrics_equal": True,
    "weights_equal": True,
    "files": [{"batches": 469, "path": "model.safetensors", "a": HASH, "b": HASH, "equal": True}],
}
VIEWS: dict[type[Any], Any] = {
    ContextFileContent: {"path": "model_def.py", "size_bytes": 19, "text": "class Trial:\n    ...\n", "cut": False},
    ContextFilesView: {"context_hash": HASH, "files": [{"path": "model_def.py", "size_bytes": 19}], "more": False},
    DeletionAsked: {"id": 3, "changed": True, "due_us": later(86_400)},
    DiffView: {"a": "3-7", "b": "6-1", "differences": [_DIFFERENCE], "results": _RESULTS, "gaps": []},
    ExperimentView: _EXPERIMENT,
    ExperimentDetail: {
        **_EXPERIMENT,
        "config": _MERGED,
        "best_checkpoint_id": "3-7-1-469",
        "layers": [_LAYER],
        "rungs": _RUNGS,
        "wall_seconds": 60.0,
        "wall_since_us": later(60),
    },
    ImportancesView: {
        "method": "fanova",
        "metric": "accuracy",
        "compared": 64,
        "more": False,
        "importances": [{"name": "learning_rate", "importance": 0.81}],
        "left_out": ["global_batch_size"],
    },
    OperationsRecorded: {
        "position": 121,
        "searcher": "my_search.py:MySearch",
        "operations": [{"kind": "stop", "trial": 3}],
    },
    LineageView: {
        "trials": [
            {
                "trial_id": "3-9",
                "number": 9,
                "parent_id": "3-4",
                "generation": 1,
                "parent_metric": 0.93,
                "source_checkpoint_id": "3-4-1@469",
                "hyperparameters": {"learning_rate": 0.0037},
                "outcome": None,
                "changed": [{"name": "learning_rate", "before": 0.0031, "after": 0.0037}],
                "sentences": ["It goes on from trial 3-4."],
                "position": 210,
                "time_us": later(60),
            }
        ]
    },
    MomentsView: {"positions": [120, 121, 125], "times_us": [later(0), later(1), later(2)]},
    PreviewView: {
        "config": _MERGED,
        "layers": [_LAYER],
        "values": [
            {"path": "resources.priority", "value": 60, "source": "template", "source_name": "template urgent (version 2)"}
        ],
        "wall_hours_max": None,
        "rungs": _RUNGS,
        "refused": "",
    },
    ReproductionView: {
        "experiment_id": 6,
        "trial_id": "6-1",
        "reproduces": "3-7",
        "ended": True,
        "equal": True,
        "results": _RESULTS,
        "differences": [],
    },
    RungsView: {
        "rungs": [
            {
                "key": "/0",
                "rung": 0,
                "bracket": None,
                "length": 469,
                "unit": "batches",
                "cut_off": 0.95,
                "trials": [
                    {"trial_id": "3-7", "metric": 0.97, "fate": "goes on", "sentence": "It is among the best.", "position": 180}
                ],
            }
        ]
    },
    SparkView: {"experiment_id": 3, "batches": [469, 938], "values": [0.95, 0.97]},
    Submitted: {"id": 3, "position": 120, "rungs": _RUNGS},
    TrialRecordView: {
        "trial_id": "3-7",
        "context_hash": HASH,
        "origin": {"command_line": "tenuto exp create digits.yaml ."},
        "parent": None,
        "hyperparameters": {"learning_rate": 0.0031},
        "seed": 4611686018427387904,
        "starts": [
            {
                "allocation_id": "3-7-1",
                "time_us": later(2),
                "environment_hash": HASH,
                "data": [
                    {
                        "name": "train",
                        "path": "/data/train",
                        "fingerprint": HASH,
                        "method": "content",
                        "files": 1,
                        "size_bytes": 47_040_016,
                    }
                ],
                "changed_data": [],
            }
        ],
        "environments": {
            HASH: {
                "python": "3.12.3",
                "platform": "Linux 6.8",
                "packages": {"torch": "2.4.0"},
                "hardware": {"machine": "x86_64", "cpu_model": "CPU", "cpu_cores": 16, "memory_gib": 128, "gpus": []},
            }
        },
    },
    WorkspaceRulesView: {"rules": [{"on": "trial", "states": ["failed"], "do": "pause"}], "user": "ada"},
}
