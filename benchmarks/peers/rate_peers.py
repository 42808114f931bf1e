"""One peer's trials per second; started by trials_per_second.py in the environment of requirements.txt.

    python benchmarks/peers/rate_peers.py ray|ray-reuse|optuna|syne-tune [--trials 100] [--url POSTGRESQL_URL]

ASHA (stopping, as these libraries have it) over 1, 4, 16, 64 steps, two trials at once. Prints JSON: seconds from the start of
the search to its end, and of what had to be started before.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from figures import figure, parse

STEPS, DIVISOR, RUNGS, WORKERS = 64, 4, (1, 4, 16, 64), 2
SEED = 1


def loss(x: float, step: int) -> float:
    return (x - 0.3) ** 2 + 1 / step


def ray(trials: int, reuse: bool) -> dict[str, Any]:
    os.environ |= {"RAY_AIR_NEW_OUTPUT": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "1"}
    import ray
    from ray import tune

    began = time.monotonic()
    ray.init(num_cpus=WORKERS, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    ready = time.monotonic()

    def train(config: dict[str, float]) -> None:
        for step in range(1, STEPS + 1):
            if step in RUNGS:
                tune.report({"loss": loss(config["x"], step), "steps": step})

    with tempfile.TemporaryDirectory() as directory:
        results = tune.Tuner(
            train,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                num_samples=trials,
                max_concurrent_trials=WORKERS,
                reuse_actors=reuse,
                scheduler=tune.schedulers.ASHAScheduler(time_attr="steps", max_t=STEPS, grace_period=1, reduction_factor=DIVISOR),
            ),
            run_config=tune.RunConfig(storage_path=directory, verbose=0),
        ).fit()
        ended = time.monotonic()
        assert len(results) == trials
    ray.shutdown()
    return {"seconds": ended - ready, "start_seconds": ready - began}


def optuna(trials: int, url: str) -> dict[str, Any]:
    """Two processes share a study in PostgreSQL, as Optuna's guide says for several workers."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    began = time.monotonic()
    url = url.replace("postgresql://", "postgresql+psycopg://")
    optuna.create_study(study_name="rate", storage=url)
    ready = time.monotonic()
    shares = [trials // WORKERS + (index < trials % WORKERS) for index in range(WORKERS)]
    command = [sys.executable, __file__, "optuna-worker", "--url", url, "--trials"]
    workers = [subprocess.Popen([*command, str(share)]) for share in shares]
    assert [worker.wait() for worker in workers] == [0] * WORKERS
    ended = time.monotonic()
    assert len(optuna.load_study(study_name="rate", storage=url).trials) == trials
    return {"seconds": ended - ready, "start_seconds": ready - began}


def optuna_worker(trials: int, url: str) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def train(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        for step in RUNGS:
            trial.report(loss(x, step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return loss(x, STEPS)

    study = optuna.load_study(
        study_name="rate",
        storage=url,
        sampler=optuna.samplers.RandomSampler(),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=DIVISOR),
    )
    study.optimize(train, n_trials=trials)


def syne_tune(trials: int) -> dict[str, Any]:
    logging.getLogger().setLevel(logging.ERROR)
    began = time.monotonic()
    from syne_tune import StoppingCriterion, Tuner
    from syne_tune.backend import LocalBackend
    from syne_tune.config_space import uniform
    from syne_tune.optimizer.baselines import ASHA

    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "train.py"
        script.write_text(
            "from argparse import ArgumentParser\n"
            "from syne_tune import Reporter\n"
            "parser = ArgumentParser()\n"
            "parser.add_argument('--x', type=float)\n"
            "arguments, _ = parser.parse_known_args()\n"
            "report = Reporter()\n"
            f"for step in {RUNGS}:\n"
            "    report(steps=step, loss=(arguments.x - 0.3) ** 2 + 1 / step)\n"
        )
        os.environ["SYNETUNE_FOLDER"] = directory
        scheduler = ASHA(
            {"x": uniform(0, 1)},
            metric="loss",
            time_attr="steps",
            max_t=STEPS,
            grace_period=1,
            reduction_factor=DIVISOR,
            random_seed=SEED,
        )
        tuner = Tuner(
            trial_backend=LocalBackend(entry_point=str(script)),
            scheduler=scheduler,
            stop_criterion=StoppingCriterion(max_num_trials_finished=trials),
            n_workers=WORKERS,
            sleep_time=0.01,
            print_update_interval=1e9,
        )
        ready = time.monotonic()
        tuner.run()
        return {"seconds": time.monotonic() - ready, "start_seconds": ready - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=("ray", "ray-reuse", "optuna", "optuna-worker", "syne-tune"))
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--url", default="", help="of the database of Optuna")
    given = parse(parser, trials=2)
    match given.peer:
        case "ray" | "ray-reuse":
            found = ray(given.trials, given.peer == "ray-reuse")
        case "optuna":
            found = optuna(given.trials, given.url)
        case "optuna-worker":
            optuna_worker(given.trials, given.url)
            return
        case "syne-tune":
            found = syne_tune(given.trials)
    print(json.dumps(found))
    figure(f"trials of {given.peer}", given.trials / found["seconds"], "/s")


if __name__ == "__main__":
    main()
