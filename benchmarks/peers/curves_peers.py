"""Syne Tune's, Optuna's and Ray Tune's ASHA on the curves of `curves_ours.py`: `python benchmarks/peers/curves_peers.py FILE`.

Runs in the environment of requirements.txt. Each scheduler is asked by its public interface, in the same virtual clock: the same
workers, the same rows in the same order at the same pace, a report at each measured length, the same shortest rung and divisor.
Cost is all that was trained, also what is under way, when a loss at most the target was reported. All three are the stopping
form. Prints a table with ours; "20:10 p=0.1, 18:12 p=0.36" behind a peer's cost means that our promotion form cost less with 20
seeds and more with 10, our stopping form with 18 and 12, and the two-sided sign test of each.
"""

from __future__ import annotations

import argparse
import heapq
import importlib.util
import logging
import math
import random
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from figures import figure, parse


class Scheduler(Protocol):
    def start(self, number: int, row: int) -> None: ...
    def report(self, number: int, length: int, loss: float) -> bool:
        """True: train on."""
        ...

    def end(self, number: int) -> None: ...
    def resume(self) -> int | None:
        """A trial that waited and trains on, in a free place. Those of the peers never wait."""
        return None


class SyneTune(Scheduler):
    name, package = "Syne Tune ASHA", "syne_tune"

    def __init__(self, first: int, last: int, divisor: int, seed: int, rows: list[int]) -> None:
        from syne_tune.config_space import randint
        from syne_tune.optimizer.baselines import ASHA

        space = {"row": randint(0, max(rows))}
        self.scheduler = ASHA(
            space, metric="loss", time_attr="length", max_t=last, grace_period=first, reduction_factor=divisor, random_seed=seed
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


class Optuna(Scheduler):
    name, package = "Optuna SuccessiveHalvingPruner", "optuna"

    def __init__(self, first: int, last: int, divisor: int, seed: int, rows: list[int]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=divisor)
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


class RayTune(Scheduler):
    name, package = "Ray Tune ASHAScheduler", "ray"

    def __init__(self, first: int, last: int, divisor: int, seed: int, rows: list[int]) -> None:
        from ray.tune.schedulers import ASHAScheduler

        self.scheduler = ASHAScheduler(
            time_attr="length", metric="loss", mode="min", max_t=last, grace_period=first, reduction_factor=divisor
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
    scheduler: Scheduler,
    curves: Any,
    lengths: list[int],
    rows: Sequence[int],
    targets: list[float],
    divisor: int,
    workers: int,
    budget: float,
    seed: int,
) -> list[float]:
    """Cost to each target, in full trainings; infinite beyond the budget."""
    costs, heap, number, now, trained = [math.inf] * len(targets), [], 0, 0.0, 0
    under_way: dict[int, tuple[float, float, int]] = {}
    reached: dict[int, int] = {}
    rungs = [lengths[0] * divisor**k for k in range(len(lengths)) if lengths[0] * divisor**k <= lengths[-1]]

    def train(mine: int, at: int) -> None:
        part = lengths[at] - (lengths[at - 1] if at else 0)
        rung = next(rung for rung in rungs if rung >= lengths[at])
        lasts = part * random.Random(f"{seed} {mine} {rung}").uniform(0.9, 1.1)
        under_way[mine] = (now, lasts, part)
        heapq.heappush(heap, (now + lasts, mine, at))

    while len(heap) < workers:
        scheduler.start(number, rows[number])
        train(number, 0)
        number += 1
    while trained < budget * lengths[-1] and math.inf in costs and number < len(rows):
        now, mine, at = heapq.heappop(heap)
        trained += under_way.pop(mine)[2]
        loss = float(curves[rows[mine]][at])
        reached[mine] = at
        running = sum((now - since) / lasts * part for since, lasts, part in under_way.values())
        for index, target in enumerate(targets):
            if math.isinf(costs[index]) and loss <= target:
                costs[index] = (trained + running) / lengths[-1]
        if scheduler.report(mine, lengths[at], loss) and at + 1 < len(lengths):
            train(mine, at + 1)
            continue
        scheduler.end(mine)
        if (resumed := scheduler.resume()) is not None:
            train(resumed, reached[resumed] + 1)
            continue
        scheduler.start(number, rows[number])
        train(number, 0)
        number += 1
    return costs


def sign_test(less: int, more: int) -> float:
    """Two-sided: how likely a split at least as uneven is where neither is better."""
    tails = sum(math.comb(less + more, k) for k in range(max(less, more), less + more + 1))
    return min(1.0, tails / 2 ** (less + more - 1)) if less + more else 1.0


def quartiles(costs: Any) -> list[float]:
    ordered = sorted(costs)
    return [ordered[max(0, math.ceil(part * len(ordered)) - 1)] for part in (0.25, 0.5, 0.75)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=1_000, help="at most so many; by default all in the file")
    parser.add_argument(
        "--peers", nargs="+", choices=[peer.__name__ for peer in PEERS], default=[peer.__name__ for peer in PEERS]
    )
    arguments = parse(parser, seeds=1)
    peers = [peer for peer in PEERS if peer.__name__ in arguments.peers and importlib.util.find_spec(peer.package)]
    for peer in [peer for peer in PEERS if peer.__name__ in arguments.peers and peer not in peers]:
        print(f"{peer.name} is left out: {peer.package} is not installed")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    file = np.load(arguments.file)
    budget, parts = float(file["budget"]), file["parts"]
    divisor, workers = int(file["divisor"]), int(file["workers"])
    for name in [entry.removesuffix("/curves") for entry in file.files if entry.endswith("/curves")]:
        curves, lengths = file[f"{name}/curves"], [int(one) for one in file[f"{name}/lengths"]]
        orders, targets = file[f"{name}/orders"], file[f"{name}/targets"]
        seeds = min(arguments.seeds, len(orders))
        print(f"\n**{name}** ({seeds} seeds, {workers} workers, divisor {divisor})\n")
        print("| scheduler | R/r | " + " | ".join(f"best {part:.2%}" for part in parts) + " |")
        print("|---|---|" + "---|" * len(parts), flush=True)
        for at, ratio in enumerate(file["ratios"]):
            for form, label in enumerate(file["forms"]):
                _row(f"Tenuto {label}", int(ratio), file[f"{name}/costs"][form, at, :seeds], budget)
            ours = file[f"{name}/costs"][:, at, :seeds]
            for peer in peers:
                began, costs = time.monotonic(), []
                for seed in range(seeds):
                    first = lengths[-1] // int(ratio)
                    rows = [int(row) for row in orders[seed]]
                    skip = lengths.index(first)
                    costs.append(
                        search(
                            peer(first, lengths[-1], divisor, seed, rows),
                            curves[seed % len(curves)][:, skip:],
                            lengths[skip:],
                            rows,
                            [float(target) for target in targets[seed]],
                            divisor,
                            workers,
                            budget,
                            seed,
                        )
                    )
                _row(peer.name, int(ratio), np.array(costs), budget, ours)
                own, of = (quartiles(found[:, -1])[1] for found in (ours[0], np.array(costs)))
                if math.isfinite(own) and math.isfinite(of):
                    shown = f"{file['forms'][0]}, R/r {ratio}, {name}"
                    figure(shown, float(own), "full trainings", beside=peer.name, of=float(of))
                print(f"{name} {peer.name} {ratio}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _row(label: str, ratio: int, costs: Any, budget: float, ours: Any = None) -> None:
    """`ours`, the costs of each of our forms with the same seeds: how often they are less and more is said too."""
    cells = []
    for target in range(costs.shape[1]):
        low, middle, high = (f"{one:.3g}" if math.isfinite(one) else f">{budget:.0f}" for one in quartiles(costs[:, target]))
        duels = []
        for one in () if ours is None else ours:
            less, more = int((one < costs)[:, target].sum()), int((one > costs)[:, target].sum())
            duels.append(f"{less}:{more} p={sign_test(less, more):.2g}")
        cells.append(", ".join([f"{middle} ({low} to {high})", *duels]))
    print(f"| {label} | {ratio} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
