"""Output of `tenuto exp describe`: the facts of an experiment, its trials with the best first, and why each ended as it did."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenuto.cli.checkpoints import damages
from tenuto.cli.output import aligned, compare, duration, plain, seconds, table, when, width_of

if TYPE_CHECKING:
    from rich.console import RenderableType

METRIC_DIGITS = 5
SILENT_SECONDS_MIN = 60.0
"""A trial of whose workers nothing was heard for so long is named."""
SILENT_MAX = 10
BREAKS_MAX = 10
"""Most reasons for which trials are not resumed exactly: they are the code's, and so nearly always the same in all trials."""
BREAK_TRIALS_MAX = 3
"""Trials that are named with each."""
LAYER_PATHS_MAX = 8
"""Values that are named of those that a template gave."""


def experiment_view(
    view: dict[str, Any],
    trials: list[dict[str, Any]],
    checkpoint: dict[str, Any] | None,
    width: int,
    damaged: Sequence[dict[str, Any]] = (),
    waits: str = "",
) -> RenderableType:
    """`view`, `trials`, `checkpoint` (the best one) and `damaged` (checkpoints) as the REST door sends them; `width` of the
    screen in characters; `waits`: why trials wait for slots."""
    from rich.console import Group
    from rich.padding import Padding

    ranked = best_first(view, trials)
    columns, rows = _rows(view, ranked)
    values = compare([trial["hyperparameters"] for trial in ranked], width - width_of(columns, rows))
    facts = _facts(view, checkpoint)
    facts += [("waits", waits)] if waits else []
    facts += [("damaged", line) for line in damages(damaged)]
    facts += [("silent", line) for line in _silent(trials)]
    facts += [("not exact", line) for line in _breaks(trials)]
    if values.same:
        facts.append(("same in all trials", values.same))
    parts: list[RenderableType] = [table(f"experiment {view['id']}", ("", ""), facts)]
    if ranked:
        joined = [(*row, *cells) for row, cells in zip(rows, values.rows, strict=True)]
        found = next((index for index, trial in enumerate(ranked) if trial["id"] == view["best_trial_id"]), None)
        parts.append(Padding(table("trials", (*columns, *values.columns), joined, bold=found), (1, 0, 0, 0), expand=False))
        why = [(trial["id"], trial["error"].split("\n", 1)[0] if trial["error"] else trial["reason"]) for trial in ranked]
        parts.append(table("why", ("", ""), why))
    return Group(*parts)


def best_first(view: dict[str, Any], trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(trials, key=lambda trial: _rank(trial, view["smaller_is_better"]))


def _rows(view: dict[str, Any], ranked: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Columns of the trials, without their hyperparameters."""
    if view["state"] == "unmanaged":  # no search asked for a length, and none compared a metric
        return ("trial", "state", ">steps"), [(trial["id"], trial["state"], trial["batches"]) for trial in ranked]
    metrics = aligned([trial["best_metric"] for trial in ranked], METRIC_DIGITS)
    rows = [
        (trial["id"], trial["state"], f"{trial['length']}/{trial['target_length']}", metric, trial["allocations"])
        for trial, metric in zip(ranked, metrics, strict=True)
    ]
    return ("trial", "state", ">" + _unit(view), f">best\n{view['metric']}", ">runs"), rows


def _silent(trials: list[dict[str, Any]]) -> list[str]:
    silent = [
        (trial["silent_seconds"], trial["id"]) for trial in trials if (trial.get("silent_seconds") or 0) > SILENT_SECONDS_MIN
    ]
    return [f"trial {trial} last reported {seconds(value)} ago" for value, trial in sorted(silent, reverse=True)[:SILENT_MAX]]


def _breaks(trials: Sequence[dict[str, Any]]) -> list[str]:
    """Reasons why a resume is not exact, each with the trials that it affects."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        for sentence in trial.get("breaks") or ():
            found.setdefault(sentence, []).append(trial["id"])
    lines = []
    for sentence, ids in list(found.items())[:BREAKS_MAX]:
        more = f" and {len(ids) - BREAK_TRIALS_MAX} more" if len(ids) > BREAK_TRIALS_MAX else ""
        lines.append(f"{sentence} (trial{'s' if len(ids) > 1 else ''} {', '.join(ids[:BREAK_TRIALS_MAX])}{more})")
    if len(found) > BREAKS_MAX:
        lines.append(f"{len(found) - BREAKS_MAX} more; `tenuto trial describe` has all of a trial")
    return lines


def _layer(item: dict[str, Any]) -> str:
    what = f"template {item['name']}" if item["kind"] == "template" else "the defaults"
    where = f" of workspace {item['workspace']}" if item["workspace"] else ""
    shown = [*item["paths"][:LAYER_PATHS_MAX]]
    left = len(item["paths"]) + item.get("more", 0) - len(shown)
    gave = ", ".join([*shown, *([f"{left} more"] if left else [])]) or "nothing"
    return f"{what}{where} (version {item['version']}): {gave}"


def _facts(view: dict[str, Any], checkpoint: dict[str, Any] | None) -> list[tuple[str, Any]]:
    if view["state"] == "unmanaged":
        facts: list[tuple[str, Any]] = [
            ("name", view["name"]),
            ("state", "unmanaged: its trials are runs of programs that Tenuto did not start"),
            ("created", f"{when(view['submitted_us'])} by {view['user']}"),
        ]
    else:
        goal = "smallest" if view["smaller_is_better"] else "largest"
        facts = [
            ("name", view["name"]),
            ("state", view["state"]),
            ("search", f"{view['method']} for {goal} {view['metric']}, seed {view['seed']}"),
            *([("rungs", view["rungs"])] if view.get("rungs") else []),
            *_limits(view),
            *(("merged from", _layer(item)) for item in view.get("layers", ())),
            ("slots per trial", view["slots_per_trial"]),
            ("priority", view["priority"]),
            ("submitted", f"{when(view['submitted_us'])} by {view['user']}"),
            ("took", duration(view["submitted_us"], view["ended_us"] or view.get("as_of_us"))),
            *_time(view),
        ]
    if view.get("as_of_us"):
        facts.insert(1, ("as of", when(view["as_of_us"])))
    if view.get("note"):
        facts.insert(2, ("note", view["note"]))
    if view["labels"]:
        facts.insert(2, ("labels", ", ".join(view["labels"])))
    if (due_us := view.get("deletion_due_us")) is not None:
        facts.append(("deletion", f"at {when(due_us)}; until then `tenuto exp undelete {view['id']}` keeps it"))
    if (deleted_us := view.get("deleted_us")) is not None:
        facts.append(("deleted", f"at {when(deleted_us)}, with its checkpoints, metrics and log lines"))
    if view.get("archived"):
        facts.append(("archived", "yes; `tenuto exp unarchive` shows it in lists again"))
    if view.get("parent_id"):
        facts.insert(1, ("made from", f"{view['parent_id']} ({view['relation']})"))
    if view["best_trial_id"]:
        facts.append(("best", f"trial {view['best_trial_id']} with {view['metric']} {plain(view['best_metric'])}"))
    elif view["state"] == "completed":
        facts.append(("best", f"none: {view['metric']} was never a finite number; `tenuto exp logs {view['id']}` may say why"))
    if checkpoint:
        facts.append(("its checkpoint", f"{checkpoint['id']} at {checkpoint['location']}"))
    elif view.get("best_checkpoint_id"):  # of an earlier moment, at which it may have been elsewhere
        facts.append(("its checkpoint", view["best_checkpoint_id"]))
    elif view["best_trial_id"]:
        facts.append(("its checkpoint", f"none is kept; if one could not be saved, `tenuto exp logs {view['id']}` says so"))
    if view.get("canceled_because"):
        facts.append(("canceled", view["canceled_because"]))
    if view["error"]:
        facts.append(("error", view["error"]))
    return facts


def _limits(view: dict[str, Any]) -> list[tuple[str, str]]:
    """Limits as they are now: users change them while the search runs."""
    in_all, at_once, slots = view.get("max_trials"), view.get("max_concurrent_trials"), view.get("max_slots")
    texts = [f"{in_all:,} trials"] if in_all else []
    texts += [f"{at_once:,} at once"] if at_once else []
    texts += [f"{slots:,} slots"] if slots else []
    return [("at most", ", ".join(texts))] if texts else []


def _time(view: dict[str, Any]) -> list[tuple[str, str]]:
    """Limit of the experiment's running time, and the time used by now; empty without a limit."""
    limit, since_us = view.get("wall_hours_max"), view.get("wall_since_us")
    if not limit:
        return []
    now = 0.0 if since_us is None else max(0.0, time.time() - since_us / 1e6)
    return [("has run", f"{seconds(view['wall_seconds'] + now)} of {limit:g} h at most; then it is canceled")]


def _unit(view: dict[str, Any]) -> str:
    lengths = view["config"]["searcher"].get("max_length") or {}
    return next((unit for unit, value in lengths.items() if value is not None), "length")


def _rank(trial: dict[str, Any], smaller_is_better: bool) -> tuple[bool, float, int]:
    metric = trial["best_metric"]
    known = isinstance(metric, (int, float)) and math.isfinite(metric)
    return (not known, (metric if smaller_is_better else -metric) if known else 0.0, trial["number"])
