"""Syne Tune's, Optuna's and Ray Tune's ASHA on the curves of `curves_ours.py`: `python benchmarks/peers/curves_peers.py FILE`.

Runs in the environment of requirements.txt. Each scheduler is asked by its public interface, in one virtual clock: the same
workers, the same rows in the same order, a report at each power of two, the same shortest rung and divisor; cost is the length
trained by all until a loss at most the target was reported. All three are the stopping form. Prints a table with ours;
20:10, 18:12 behind a peer's cost means that our promotion form cost less with 20 seeds and more with 10, and our stopping form
with 18 and 12.
"""

from __future__ import annotations

import argparse
import heapq
import logging
import math
import random
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Protocol

import numpy as np

WORKERS, DIVISOR = 4, 4


class Scheduler(Protocol):
    def start(self, number: int, row: int) -> None: ...
    def report(self, number: int, length: int, loss: float) -> bool:
        """True: train on."""
        ...

    def end(self, number: int) -> None: ...


class SyneTune:
    name = "Syne Tune ASHA"

    def __init__(self, first: int, last: int, seed: int, rows: list[int]) -> None:
        from syne_tune.config_space import randint
        from syne_tune.optimizer.baselines import ASHA

        space = {"row": randint(0, max(rows))}
        self.scheduler = ASHA(
            space, metric="loss", time_attr="length", max_t=last, grace_period=first, reduction_factor=DIVISOR, random_seed=seed
        )
        self.trials: dict[int, Any] = {}

    def start(self, number: int, row: int) -> None:
        from datetime import datetime

        from syne_tune.backend.trial_status import Trial

        self.trials[number] = Trial(number, {"row": row}, datetime(2026, 1, 1))  # noqa: DTZ001
        self.scheduler.on_trial_add(self.trials[number])

    def report(self, number: int, length: int, loss: float) -> bool:
        return self.scheduler.on_trial_result(self.trials[number], {"loss": loss, "length": length}) == "CONTINUE"

    def end(self, number: int) -> None:
        pass


class Optuna:
    name = "Optuna SuccessiveHalvingPruner"

    def __init__(self, first: int, last: int, seed: int, rows: list[int]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=DIVISOR)
        self.study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed), pruner=pruner)
        self.pruned = optuna.trial.TrialState.PRUNED
        self.trials: dict[int, Any] = {}
        self.last, self.losses = last, dict[int, float]()

    def start(self, number: int, row: int) -> None:
        self.trials[number] = self.study.ask()
        self.trials[number].set_user_attr("row", row)

    def report(self, number: int, length: int, loss: float) -> bool:
        trial = self.trials[number]
        trial.report(loss, step=length)
        self.losses[number] = loss
        return length < self.last and not trial.should_prune()

    def end(self, number: int) -> None:
        self.study.tell(self.trials.pop(number), self.losses.pop(number))


class RayTune:
    name = "Ray Tune ASHAScheduler"

    def __init__(self, first: int, last: int, seed: int, rows: list[int]) -> None:
        from ray.tune.schedulers import ASHAScheduler

        self.scheduler = ASHAScheduler(
            time_attr="length", metric="loss", mode="min", max_t=last, grace_period=first, reduction_factor=DIVISOR
        )
        np.random.seed(seed)  # it draws brackets from there

    def start(self, number: int, row: int) -> None:
        self.scheduler.on_trial_add(None, _RayTrial(number))

    def report(self, number: int, length: int, loss: float) -> bool:
        return self.scheduler.on_trial_result(None, _RayTrial(number), {"loss": loss, "length": length}) == "CONTINUE"

    def end(self, number: int) -> None:
        pass


class _RayTrial:
    def __init__(self, number: int) -> None:
        self.trial_id = str(number)


PEERS = (SyneTune, Optuna, RayTune)


def search(
    scheduler: Scheduler, curves: Any, lengths: list[int], rows: list[int], targets: list[float], budget: float, seed: int
) -> list[float]:
    """Cost to each target, in full trainings; infinite beyond the budget. Workers differ in pace by 10 %, as in our simulator."""
    jitter, trained, best = random.Random(seed), 0, math.inf
    costs, heap, number = [math.inf] * len(targets), [], 0
    for _ in range(WORKERS):
        scheduler.start(number, rows[number])
        heapq.heappush(heap, (lengths[0] * jitter.uniform(0.9, 1.1), number, 0))
        number += 1
    while heap and trained < budget * lengths[-1] and best > min(targets) and number < len(rows):
        now, mine, at = heapq.heappop(heap)
        trained += lengths[at] - (lengths[at - 1] if at else 0)
        loss = float(curves[rows[mine], at])
        if loss < best:
            best = loss
            costs = [
                trained / lengths[-1] if math.isinf(cost) and loss <= target else cost
                for cost, target in zip(costs, targets, strict=True)
            ]
        if scheduler.report(mine, lengths[at], loss) and at + 1 < len(lengths):
            heapq.heappush(heap, (now + (lengths[at + 1] - lengths[at]) * jitter.uniform(0.9, 1.1), mine, at + 1))
            continue
        scheduler.end(mine)
        scheduler.start(number, rows[number])
        heapq.heappush(heap, (now + lengths[0] * jitter.uniform(0.9, 1.1), number, 0))
        number += 1
    return costs


def quartiles(costs: Any) -> list[float]:
    ordered = sorted(costs)
    return [ordered[max(0, math.ceil(part * len(ordered)) - 1)] for part in (0.25, 0.5, 0.75)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument(
        "--peers", nargs="+", choices=[peer.__name__ for peer in PEERS], default=[peer.__name__ for peer in PEERS]
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    file = np.load(arguments.file)
    budget, parts = float(file["budget"]), file["parts"]
    for name in [entry.removesuffix("/curves") for entry in file.files if entry.endswith("/curves")]:
        curves, lengths = file[f"{name}/curves"], [int(one) for one in file[f"{name}/lengths"]]
        orders, targets = file[f"{name}/orders"], file[f"{name}/targets"]
        seeds = min(arguments.seeds, len(orders))
        print(f"\n**{name}** ({seeds} seeds, {WORKERS} workers)\n")
        print("| scheduler | R/r | " + " | ".join(f"best {part:.2%}" for part in parts) + " |")
        print("|---|---|" + "---|" * len(parts), flush=True)
        for at, ratio in enumerate(file["ratios"]):
            for form, label in enumerate(file["forms"]):
                _row(f"Tenuto {label}", int(ratio), file[f"{name}/costs"][form, at, :seeds], budget)
            ours = file[f"{name}/costs"][:, at, :seeds]
            for peer in [peer for peer in PEERS if peer.__name__ in arguments.peers]:
                began, costs = time.monotonic(), []
                for seed in range(seeds):
                    first = lengths[-1] // int(ratio)
                    rows = [int(row) for row in orders[seed]]
                    skip = lengths.index(first)
                    costs.append(
                        search(
                            peer(first, lengths[-1], seed, rows),
                            curves[seed % len(curves)][:, skip:],
                            lengths[skip:],
                            rows,
                            [float(target) for target in targets[seed]],
                            budget,
                            seed,
                        )
                    )
                _row(peer.name, int(ratio), np.array(costs), budget, ours)
                print(f"{name} {peer.name} {ratio}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _row(label: str, ratio: int, costs: Any, budget: float, ours: Any = None) -> None:
    """`ours`, the costs of each of our forms with the same seeds: how often they are less and more is said too."""
    cells = []
    for target in range(costs.shape[1]):
        low, middle, high = (f"{one:.3g}" if math.isfinite(one) else f">{budget:.0f}" for one in quartiles(costs[:, target]))
        duels = [
            f"{int((one < costs)[:, target].sum())}:{int((one > costs)[:, target].sum())}"
            for one in (() if ours is None else ours)
        ]
        cells.append(", ".join([f"{middle} ({low} to {high})", *duels]))
    print(f"| {label} | {ratio} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
