"""sim search: compare search methods on learning curves, in seconds and without training anything."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.common import Json
from tenuto.cli.errors import CliError
from tenuto.cli.overrides import Settings
from tenuto.cli.say import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from tenuto.schemas.config import ExperimentConfig
    from tenuto.schemas.events import EventData
    from tenuto.schemas.events.request import ExperimentSubmitted
    from tenuto.schemas.operations import Operation
    from tenuto.services.searcher.simulation.compare import MethodResult
    from tenuto.services.searcher.simulation.run import Own

SEEDS_MAX = 1_000
WORKERS_MAX = 10_000


def search(
    config: Annotated[Path, typer.Argument(help="Configuration (YAML) of the search.")],
    methods: Annotated[
        str, typer.Option(help="Methods compared beside the configured one, with commas, such as random,asha,hyperband.")
    ] = "random",
    seeds: Annotated[int, typer.Option(help="Searches of each method.", min=1, max=SEEDS_MAX)] = 10,
    workers: Annotated[int, typer.Option(help="Trials that train at once.", min=1, max=WORKERS_MAX)] = 8,
    curves: Annotated[
        Path | None, typer.Option(help="Trained curves (CSV: hyperparameters, then loss@<length>). Default: synthetic ones.")
    ] = None,
    failures: Annotated[float, typer.Option(help="Probability that a run is killed on its way.", min=0, max=0.9)] = 0.0,
    stragglers: Annotated[float, typer.Option(help="Probability that a run trains five times slower.", min=0, max=1)] = 0.0,
    picture: Annotated[
        Path | None, typer.Option(help="Draw best loss against cost into this file (PNG, SVG, PDF or HTML).")
    ] = None,
    searcher: Annotated[
        str | None, typer.Option(metavar="FILE:CLASS", help="Your own search, where searcher.name is custom.")
    ] = None,
    overrides: Settings = [],  # noqa: B006 - typer copies it
    json: Json = False,
) -> None:
    """Run a search many times on learning curves, and compare methods by what they cost to reach a loss."""
    from dataclasses import asdict

    from tenuto.cli.output import console, print_json, table
    from tenuto.cli.preview import read_config
    from tenuto.services.searcher.adapters.samplers import SamplerMissing
    from tenuto.services.searcher.methods.sampling import Undrawable
    from tenuto.services.searcher.simulation.compare import compare
    from tenuto.services.searcher.simulation.run import SearchStuck, Surroundings

    parsed = read_config(config, overrides)
    around = Surroundings(workers=workers, failure_probability=failures, straggler_probability=stragglers)
    own = own_of(searcher, parsed.searcher.name)
    try:
        results = compare(variants(parsed, methods), curves_of(parsed, curves), around, seeds, own)
    except SearchStuck as error:
        raise CliError(f"{searcher} does not come to an end: {error}.") from error
    except (SamplerMissing, Undrawable) as error:
        raise CliError(str(error)) from error
    if picture is not None:
        draw(results, picture, parsed.searcher.max_length.unit)
    if json:
        print_json([asdict(result) | {"path": [list(point) for point in result.path]} for result in results])
        return
    unit = parsed.searcher.max_length.unit
    columns = ["method", *(f">{head}" for head in heads(results, unit)[1:])]
    rows = [cells(result, results) for result in results]
    console().print(table(f"medians of {seeds} searches with {workers} workers", columns, rows))
    draws = results[0].target_draws
    say(f"Target: a loss of {results[0].target:.4g}, the best of {draws} random configurations trained to the full length.")
    if len(results) > 1:
        say(budgets(results, unit))
    if picture is not None:
        say(f"The picture is in {picture}.")


def heads(results: list[MethodResult], unit: str) -> tuple[str, ...]:
    least = min(result.cost for result in results)
    same = f"best loss by {least:,.0f} {unit}"
    return ("method", "trials", f"cost ({unit})", "best loss", same, f"{unit} to target", "reached it", "against random")


def cells(result: MethodResult, results: list[MethodResult]) -> tuple[str, ...]:
    low, high = result.cost_range
    spread = f" ({low:,.0f} to {high:,.0f})" if round(low) != round(high) else ""
    return (
        result.method,
        f"{result.trials:,}",
        f"{result.cost:,.0f}{spread}",
        f"{result.best:.6g}",
        "" if result.best_at_same_cost is None else f"{result.best_at_same_cost:.6g}",
        show_cost(result),
        f"{result.reached} of {result.seeds}",
        ratio(result, results),
    )


def show_cost(result: MethodResult) -> str:
    """Median cost to the target. If fewer than half of the searches reached it, the median is above all that they trained."""
    return f"over {result.cost:,.0f}" if result.cost_to_target is None else f"{result.cost_to_target:,.0f}"


def ratio(result: MethodResult, results: list[MethodResult]) -> str:
    """Factor by which it is cheaper than random search, up to the target; a bound if one of the two did not reach it."""
    random = next((other for other in results if other.method == "random"), None)
    if random is None or random is result or (result.cost_to_target is None and random.cost_to_target is None):
        return ""
    if result.cost_to_target is None:
        assert random.cost_to_target is not None
        return f"below {random.cost_to_target / result.cost:.1f}x"
    times = (random.cost_to_target or random.cost) / result.cost_to_target
    return f"over {times:.1f}x cheaper" if random.cost_to_target is None else f"{times:.1f}x cheaper"


def budgets(results: list[MethodResult], unit: str) -> str:
    """Note on differing training budgets, without which losses and reached targets do not compare."""
    least, most = min(results, key=lambda result: result.cost), max(results, key=lambda result: result.cost)
    if most.cost <= least.cost * 1.1:
        return f"Budgets: all methods trained about as much, {least.cost:,.0f} to {most.cost:,.0f} {unit} in all."
    return (
        f"Budgets differed: {most.method} trained {most.cost / least.cost:.1f} times as much as {least.method} ({most.cost:,.0f}"
        f" {unit} against {least.cost:,.0f}), so it had more chances to reach the target. Compare the losses by {least.cost:,.0f}"
        f" {unit}, or give the others more trials (--set searcher.max_trials=N)."
    )


def variants(config: ExperimentConfig, methods: str) -> dict[str, ExperimentConfig]:
    """The configured search, and the same with each method named, as far as their settings are the same."""
    from pydantic import ValidationError

    from tenuto.kernel import plugins, search_methods
    from tenuto.schemas.config.errors import ConfigError
    from tenuto.schemas.config.rungs import with_shortest
    from tenuto.schemas.config.searchers import OWN_NAMES

    known = plugins.names(search_methods.GROUP)
    mine = {key: value for key, value in config.searcher.model_dump(mode="json").items() if value is not None}
    found: dict[str, ExperimentConfig] = {config.searcher.name: config}
    for name in filter(None, (part.strip() for part in methods.split(","))):
        if name not in known:
            raise CliError(f"There is no method {name}; there are {', '.join(known)}.")
        if name in found:
            continue
        if name == "custom":
            raise CliError("A search of your own is compared where searcher.name is custom; name only others in --methods.")
        kept: dict[str, Any] = {key: value for key, value in mine.items() if key in SHARED | same_settings(name, config)}
        if "max_trials" not in kept:
            kept["max_trials"] = 256
        if name not in OWN_NAMES:
            kept["settings"] = {}
        while True:
            try:
                # With what is None: a hyperparameter's value may be.
                whole = config.model_dump(mode="json") | {"searcher": kept | {"name": name}}
                found[name] = search_methods.settled(with_shortest(type(config).model_validate(whole), kept))
                break
            except ConfigError as error:
                raise CliError(f"The {name} searcher cannot be compared: {error}.") from error
            except ValidationError as error:
                extra = [item["loc"][-1] for item in error.errors() if item["type"] == "extra_forbidden"]
                if not extra:
                    raise CliError(f"The {name} searcher cannot be compared: {error.errors()[0]['msg']}.") from error
                for field in extra:
                    kept.pop(str(field), None)
    return found


def own_of(spec: str | None, method: str) -> Own | None:
    """The user's class for `custom`; each simulated search has an object of its own."""
    from tenuto.cli.search import load
    from tenuto.search import Told

    if method != "custom":
        if spec is not None:
            raise CliError(f"--searcher is for a search of your own, but searcher.name is {method}: set it to custom.")
        return None
    if spec is None:
        raise CliError("searcher.name is custom: name its class with --searcher FILE:CLASS.")
    kind = load(spec)

    def make(submitted: ExperimentSubmitted) -> Callable[[EventData], list[Operation]]:
        told = Told(kind, submitted)

        def hear(data: EventData) -> list[Operation]:
            try:
                return told.hear(data)
            except Exception as error:
                traceback.print_exc()
                raise CliError(f"{spec} failed ({type(error).__name__}: {error}).") from error

        return hear

    return make


SHARED = {
    "metric",
    "smaller_is_better",
    "max_length",
    "max_trials",
    "max_concurrent_trials",
    "divisor",
    "max_rungs",
    "min_rung_length",
    "constraints",
    "starting_points",
}


def same_settings(name: str, config: ExperimentConfig) -> set[str]:
    """`mode` means another thing in adaptive ASHA."""
    own = config.searcher.name
    return {"mode"} if {name, own} <= {"asha", "bohb"} else set()


def curves_of(config: ExperimentConfig, path: Path | None) -> Any:
    from tenuto.services.searcher.simulation.curves import CurveTable, PowerLaw

    if path is None:
        return lambda seed: PowerLaw(config.hyperparameters, config.searcher.max_length.value, seed=seed)
    try:
        table = CurveTable.read(path, config.hyperparameters)
    except (OSError, ValueError) as error:
        raise CliError(f"The curves cannot be read: {error}.") from error
    return lambda seed: table


def draw(results: list[MethodResult], path: Path, unit: str) -> None:
    """Best loss against cost: the median of all searches, and the quartiles around it."""
    from tenuto.kernel.optional import NotInstalled, needed

    try:
        matplotlib = needed("matplotlib")
    except NotInstalled as error:
        raise CliError(f"A picture needs a package: {error}, or leave out --picture.") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), dpi=120)
    for result in results:
        costs = [point[0] for point in result.path]
        [line] = axes.plot(costs, [point[2] for point in result.path], label=result.method, drawstyle="steps-post")
        low, high = [point[1] for point in result.path], [point[3] for point in result.path]
        axes.fill_between(costs, low, high, alpha=0.15, step="post", color=line.get_color())
    axes.axhline(results[0].target, linestyle=":", color="gray", label="target")
    axes.set_xscale("log")
    axes.set_xlabel(f"trained in all ({unit})")
    axes.set_ylabel("best loss so far (median, quartiles)")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    try:
        if path.suffix in (".html", ".htm"):
            path.write_text(page(results, figure, unit))
        else:
            figure.savefig(path)
    except (OSError, ValueError) as error:
        raise CliError(f"The picture cannot be written to {path}: {error}.") from error
    finally:
        pyplot.close(figure)


def page(results: list[MethodResult], figure: Figure, unit: str) -> str:
    """A page that needs no other file and no network: the picture, and the figures as a table."""
    import html
    import io

    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    svg = drawn.getvalue()
    rows = [cells(result, results) for result in results]
    table = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>\n" for row in rows)
    title = f"Search methods compared: medians of {results[0].seeds} searches"
    target = f"Target: a loss of {results[0].target:.4g}, the best of {results[0].target_draws} random configurations."
    return (
        f"<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>{title}</title><style>"
        "body{font-family:sans-serif;margin:2em} td,th{padding:.2em 1em;text-align:right} td:first-child{text-align:left}"
        f"</style></head><body><h1>{title}</h1>\n{svg[svg.index('<svg') :]}\n<table><tr>"
        + "".join(f"<th>{head}</th>" for head in heads(results, unit))
        + f"</tr>\n{table}</table>\n<p>{target}</p>\n<p>{html.escape(budgets(results, unit))}</p></body></html>\n"
    )
