"""When a coarse search completes: start a finer one around the best configuration.

tenuto automation run follow_up.py
"""

import math

from tenuto import automation
from tenuto.schemas.events.search import ExperimentCompleted

app = automation.App("follow-up")
TRIALS = 2


@app.on(ExperimentCompleted, labels=["coarse"])
async def refine(event: automation.Event[ExperimentCompleted], cluster: automation.AsyncClient) -> None:
    if event.data.best_trial_id is None:
        raise automation.Park("no trial was validated")
    best = await cluster.get_trial(event.data.best_trial_id)
    middle = math.log10(best.hyperparameters["learning_rate"])
    assert event.experiment_id is not None
    experiment = await cluster.get_experiment(event.experiment_id)
    finer = await experiment.fork(
        {
            "name": "finer",
            "labels": ["finer"],  # not coarse: else it would be followed by another one, for ever
            "hyperparameters": {
                "learning_rate": {"type": "log", "base": 10, "minval": middle - 0.1, "maxval": min(middle + 0.1, 0.0)}
            },
            "searcher": {"max_trials": TRIALS},
        }
    )
    print(f"experiment {finer.id} refines {experiment.id} around {best.hyperparameters['learning_rate']:.3f}")
