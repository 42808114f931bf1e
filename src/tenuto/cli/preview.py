"""exp preview: what a search will do, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tenuto.cli.common import Json
from tenuto.cli.errors import CliError
from tenuto.cli.overrides import Settings
from tenuto.cli.say import say


def preview(
    config: Annotated[Path, typer.Argument(help="Configuration (YAML).")],
    overrides: Settings = [],  # noqa: B006 - typer copies it
    json: Json = False,
) -> None:
    """Show brackets, rungs, how many trials train how far, and the total cost of a search. Nothing runs, no cluster is needed."""
    from dataclasses import asdict

    from tenuto.cli.output import console, print_json, table
    from tenuto.services.searcher.explain import preview as plan_of

    plan = plan_of(read_config(config, overrides))
    if json:
        print_json(asdict(plan))
        return
    columns = (">bracket", ">rung", f">length ({plan.unit})", ">trials", f">trained ({plan.unit})")
    rows = [(rung.bracket, rung.rung, rung.length, rung.trials, rung.cost) for rung in plan.rungs]
    console().print(table(f"{plan.method}: {plan.trials:,} trials, {plan.concurrent_trials} at once", columns, rows))
    about = "" if plan.exact else "about "
    share = 100 * plan.cost / plan.full_cost if plan.full_cost else 100
    say(
        f"Cost: {about}{plan.cost:,} {plan.unit} in all, {share:.3g} % of training every trial to the full length"
        f" ({plan.full_cost:,})."
    )
    if plan.method == "custom":
        say("Your own class decides: this is the most that it may ask for.")
    if not plan.exact:
        say("Trials are compared as they come, not all at once, so a few more go on than the table says.")
    if plan.problem:
        raise CliError(f"This search cannot be started: {plan.problem}")


def read_config(path: Path, overrides: Sequence[str] = ()):  # type: ignore[no-untyped-def]  # its type is not worth the import at each start of the command
    """The configuration in the file, with what `--set` says; raises CliError with every problem."""
    from tenuto.cli.overrides import read_overrides, with_overrides
    from tenuto.schemas.config.errors import ConfigError
    from tenuto.schemas.config.reading import parse_config

    try:
        return parse_config(with_overrides(path.read_bytes(), read_overrides(overrides)))
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}; give the configuration's YAML file.") from error
    except ConfigError as error:
        raise CliError(f"{path} is refused:\n" + "\n".join(f"  {problem}" for problem in error.problems)) from error
