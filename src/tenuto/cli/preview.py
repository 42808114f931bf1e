"""exp preview: what a search will do and where each value of its configuration comes from, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tenuto.cli.common import Json
from tenuto.cli.errors import CliError
from tenuto.cli.merging import Template, merged_by_cluster, read_text, refused, tell_plan
from tenuto.cli.overrides import Settings
from tenuto.cli.say import say
from tenuto.client.errors import ClientError, Refused

VALUE_CHARACTERS_MAX = 60
SOURCES = {"command_line": "command line", "configuration": "configuration", "built_in": "built in"}
NO_CLUSTER = "No cluster answers, so the defaults of its workspaces are not in this."


def preview(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="Configuration (YAML).")],
    overrides: Settings = [],  # noqa: B006 - typer copies it
    template: Template = None,
    everything: Annotated[bool, typer.Option("--all", help="Show built-in values, too.")] = False,
    merged: Annotated[bool, typer.Option("--merged", help="Print the merged configuration (YAML), and nothing else.")] = False,
    json: Json = False,
) -> None:
    """Show brackets, rungs, how many trials train how far, the total cost of a search, and where each value of the configuration
    comes from. Nothing runs; a cluster is needed only for templates and for the defaults of a workspace."""
    from dataclasses import asdict

    from tenuto.cli.output import print_json
    from tenuto.schemas.config import ExperimentConfig
    from tenuto.schemas.config.rungs import doubts
    from tenuto.services.searcher.explain import preview as plan_of
    from tenuto.services.searcher.methods import UnknownRules

    view = _view(context, config, overrides, template)
    if merged:
        from tenuto.schemas.config.yaml_text import dump_yaml

        say(dump_yaml(view["config"]).rstrip())
        return
    parsed = ExperimentConfig.model_validate(view["config"])
    try:
        plan = plan_of(parsed)
    except UnknownRules as error:  # the cluster may have a package that is not installed here
        plan, missing = None, str(error)
    if json:
        print_json((asdict(plan) if plan else {"problem": missing}) | view)
        return
    if plan:
        _show_plan(plan)
    else:
        say(f"The plan of the search cannot be shown. {missing}")
    tell_plan({"warnings": doubts(parsed)})
    _show_values(view["values"], everything=everything)
    if view.get("wall_hours_max"):
        say(f"It may run for {view['wall_hours_max']:g} h, waiting and pauses not counted; then it is canceled.")
    if view.get("alone"):
        say(NO_CLUSTER)
    if plan and plan.problem:
        raise CliError(f"This search cannot be started: {plan.problem}")
    if view["refused"]:
        raise CliError(f"The cluster would refuse it now: {view['refused']}")


def _view(context: typer.Context, config: Path, overrides: Sequence[str], template: str | None) -> dict[str, Any]:
    """Answer of `POST /preview`; without a cluster, a view of the configuration alone. Raises CliError."""
    from tenuto.cli.overrides import read_overrides
    from tenuto.schemas.config.derive import dotted
    from tenuto.schemas.config.errors import ConfigError, Problem

    changes = read_overrides(overrides) | ({"template": template} if template is not None else {})
    text = read_text(config, changes)
    said = list(dotted(changes))
    try:
        return merged_by_cluster(context, text, said)
    except Refused as error:
        if error.problems:
            raise refused(config, [Problem(**item) for item in error.problems]) from error
        raise
    except (ClientError, UnicodeDecodeError) as error:
        away = error
    try:
        return _alone(text, said)
    except ConfigError as error:
        raise refused(config, error.problems) from error
    except CliError as error:
        raise CliError(f"{error} {away}") from error


def _alone(text: bytes, said: Sequence[str]) -> dict[str, Any]:
    """Raises ConfigError, and CliError where a template is named."""
    import json

    from tenuto.kernel import search_methods
    from tenuto.schemas.config.layers import BUILT_IN, COMMAND_LINE
    from tenuto.schemas.config.merging import resolved
    from tenuto.schemas.config.reading import load_yaml

    document = load_yaml(text)
    if isinstance(document, dict) and document.get("template") is not None:
        raise CliError(f"Template {document['template']} is kept by a cluster.")
    parsed = search_methods.parsed(text)
    names = {BUILT_IN: "built_in", COMMAND_LINE: "command_line", 0: "configuration"}
    values = [
        {"path": item.path, "value": item.value, "source": names[item.source], "source_name": ""}
        for item in resolved(document, [], search_methods.validated).values(said)
    ]
    return {"config": json.loads(parsed.to_json()), "layers": [], "values": values, "refused": "", "alone": True,
            "wall_hours_max": parsed.resources.max_wall_hours}  # fmt: skip


def _show_plan(plan: Any) -> None:
    from tenuto.cli.output import console, table

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


def _show_values(values: Sequence[dict[str, Any]], *, everything: bool) -> None:
    from tenuto.cli.output import console, table

    shown = [item for item in values if everything or item["source"] != "built_in"]
    rows = [(item["path"], _short(item["value"]), item["source_name"] or SOURCES[item["source"]]) for item in shown]
    console().print(table("configuration", ("value", "", "from"), rows))
    if len(shown) < len(values):
        say(f"{len(values) - len(shown)} more values are built in; --all shows them.")


def _short(value: Any) -> str:
    import json

    if isinstance(value, dict) and value.get("type") == "const":
        value = value.get("val")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[: VALUE_CHARACTERS_MAX - 3]}..."


def read_config(path: Path, overrides: Sequence[str] = ()):  # type: ignore[no-untyped-def]  # its type is not worth the import at each start of the command
    """The configuration in the file, with what `--set` says, for what runs without a cluster; raises CliError with every
    problem."""
    from tenuto.cli.overrides import read_overrides
    from tenuto.kernel import search_methods
    from tenuto.schemas.config.errors import ConfigError
    from tenuto.schemas.config.reading import load_yaml

    text = read_text(path, read_overrides(overrides))
    try:
        document = load_yaml(text)
        if isinstance(document, dict) and document.get("template") is not None:
            raise CliError(
                f"{path} names a template, which a cluster keeps, and this runs without one: `tenuto exp preview {path} --merged`"
                " prints the merged configuration, which names none."
            )
        return search_methods.parsed(text)
    except ConfigError as error:
        raise refused(path, error.problems) from error
