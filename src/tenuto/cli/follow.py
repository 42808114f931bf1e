"""`--follow`: a live table of an experiment's trials, fed by its events."""

from __future__ import annotations

import contextlib
import math
import sys
from typing import TYPE_CHECKING, Any

from tenuto.cli import output
from tenuto.cli.experiment_story import Story, TrialStory
from tenuto.cli.output import JOINED, STATE_STYLES, aligned, cut, duration, plain
from tenuto.cli.say import say

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tenuto.client.blocking.client import Client

REFRESHES_PER_SECOND = 4
TRIALS_SHOWN_MAX = 30
OTHER_LINES = 12
"""Lines of the screen above and below the trials: a live view that is higher than the screen is cut off."""
BAR_WIDTHS = (16, 8)
"""Widths of a progress bar; the second applies if hyperparameters need the room."""
METRIC_DIGITS = 5


def follow(client: Client, experiment_id: int, *, quiet: bool = False, timeout_seconds: float | None = None) -> Story:
    """Returns when the experiment has ended; raises TimedOut where it has not in time. A terminal gets a live table, a
    pipe one line per decision and result."""
    from tenuto.cli.output import console

    story = Story(experiment_id)
    screen = console()
    with contextlib.closing(client.follow(0, experiment_id, timeout_seconds=timeout_seconds)) as events:
        if not quiet and sys.stdout.isatty():
            return _live(story, events, screen)
        for event, _ in events:
            story.fold(event)
            if not quiet and (line := _line(story, event)):
                say(line, flush=True)
            if story.ended:
                break
    return story


def _live(story: Story, events: Any, screen: Console) -> Story:
    from rich.live import Live

    with Live(
        view(story, screen.width, screen.height), console=screen, refresh_per_second=REFRESHES_PER_SECOND, transient=False
    ) as live:
        for event, _ in events:
            story.fold(event)
            live.update(view(story, screen.width, screen.height))
            if story.ended:
                break
    return story


def view(story: Story, width: int, height: int | None = None) -> RenderableType:
    """`width` and `height` of the screen, in characters and lines; None: as high as it gets."""
    from rich.console import Group
    from rich.text import Text

    from tenuto.cli.output import compare, table, width_of

    trials = sorted(story.trials.values(), key=_rank(story))
    shown = trials[: TRIALS_SHOWN_MAX if height is None else max(1, min(TRIALS_SHOWN_MAX, height - OTHER_LINES))]
    latest, best = (aligned([getattr(trial, name) for trial in shown], METRIC_DIGITS) for name in ("latest", "best"))
    columns: tuple[str, ...] = ("trial", "state", "progress", f">{story.unit}", f">{story.metric or 'metric'}", ">best")
    for bar_width in BAR_WIDTHS:
        rows: list[tuple[Any, ...]] = [
            (trial.id, trial.state, _bar(trial, story, bar_width), f"{trial.length}/{trial.target}", latest[index], best[index])
            for index, trial in enumerate(shown)
        ]
        values = compare([trial.hyperparameters for trial in shown], width - width_of(columns, rows), cut=height is not None)
        if values.columns != JOINED:
            break
    rows = [(*row, *cells) for row, cells in zip(rows, values.rows, strict=True)]
    head = Text.assemble(
        (f"{story.name} ", "bold"),
        f"(experiment {story.id}, {story.method}): ",
        (story.state, STATE_STYLES.get(story.state, "")),
        f"  {duration(story.started_us, story.time_us)}  {_counts(trials)}",
    )
    made = table("", (*columns, *values.columns), rows)
    parts: list[RenderableType] = [head, made]
    if len(trials) > len(shown):
        parts.append(Text(f"... and {len(trials) - len(shown)} more trials", style="dim"))
    if found := story.best:
        parts.append(Text(f"best: trial {found.id} with {story.metric} {plain(found.best)}", style="bold"))
    for trial in trials:
        for name, why in trial.damaged.items():
            parts.append(Text(f"trial {trial.id}: checkpoint {name} is damaged: {why}", style="red"))
    if story.last_reason and not story.ended:
        parts.append(Text(f"last decision: {story.last_reason}", style="dim"))
    if story.error:
        parts.append(Text(cut(story.error), style="red"))
    return Group(*parts)


def _rank(story: Story) -> Any:
    """Running trials first, then the best."""
    sign = 1 if story.smaller_is_better else -1

    def key(trial: TrialStory) -> tuple[bool, bool, float, int]:
        live = trial.state in ("running", "starting", "preempting")
        return (not live, trial.best is None, sign * (trial.best or 0.0), trial.number)

    return key


def _bar(trial: TrialStory, story: Story, width: int) -> str:
    filled = math.ceil(width * min(1.0, trial.length / story.max_length)) if story.max_length else 0
    return "█" * filled + "·" * (width - filled)


def _counts(trials: list[TrialStory]) -> str:
    counts: dict[str, int] = {}
    for trial in trials:
        counts[trial.state] = counts.get(trial.state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _line(story: Story, event: dict[str, Any]) -> str:
    """One line for what a person would want to know; empty for the rest."""
    kind, data = event["type"], event["data"]
    after = f"{duration(story.started_us, event['time_us']):>9}  "
    if kind == "ValidationReported":
        value = data["metrics"].get(story.metric)
        return f"{after}trial {data['trial_id']}: {story.metric} {plain(value)} at {data['length']} {story.unit}"
    if kind in ("TrialRequested", "TrialExtended", "TrialPaused", "TrialStopped"):
        return f"{after}trial {data['trial_id']}: {kind.removeprefix('Trial').lower()} ({event.get('sentence', '')})"
    error = output.head(data.get("error") or "")
    if kind == "TrialFailed":
        return f"{after}trial {data['trial_id']}: failed ({data['failures']}): {error}"
    if kind.startswith("Experiment"):
        why = error or event.get("sentence", "")
        return f"{after}{kind.removeprefix('Experiment').lower()}{': ' + why if why else ''}"
    return ""
