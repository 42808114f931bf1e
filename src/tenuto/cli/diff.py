"""`tenuto diff`, `tenuto trial record`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tenuto.cli.common import Json, TrialId, client
from tenuto.cli.say import say

Reference = Annotated[str, typer.Argument(help="An experiment such as 3, or a trial such as 3-1.")]
FINGERPRINT_CHARACTERS = 12


def diff(
    context: typer.Context,
    a: Reference,
    b: Reference,
    code: Annotated[bool, typer.Option("--code", help="Show the changed lines of the model's code.")] = False,
    json: Json = False,
) -> None:
    """Show what differs between two experiments or trials, the likely cause first, and how their results differ."""
    from tenuto.cli.output import print_json

    found = client(context).get("/diff", a=a, b=b)
    if json:
        print_json(found)
    else:
        show_differences(found["a"], found["b"], found["differences"], found["results"], code=code)
        show_results(found["results"])
        for gap in found["gaps"]:
            say(f"Note: {gap}")


def show_differences(a: str, b: str, differences: list[dict[str, Any]], results: dict[str, Any], *, code: bool = False) -> None:
    from tenuto.cli.output import console, table

    if not differences:
        say(f"Nothing recorded differs between {a} and {b}.")
        return
    rows = [
        (number, item["effect"], item["kind"].replace("_", " "), item["name"], item["a"], item["b"], item["note"])
        for number, item in enumerate(differences, 1)
    ]
    columns = (">", "effect", "what", "name", a, b, "")
    console().print(table(f"{a} and {b} differ{headline(results)}", columns, rows))
    for item in differences if code else ():
        if item["detail"]:
            say(item["detail"])


def headline(results: dict[str, Any]) -> str:
    """Headline of the differences: the meaning of their order, given the results so far."""
    made = [results["metrics_equal"], results["weights_equal"]]
    if False in made:
        return ", the likely cause of other results first"
    if True in made:
        return ", but their results are equal: what can change results stands first"
    return ", and no results can be compared yet: what can change them stands first"


def show_results(results: dict[str, Any]) -> None:
    from tenuto.cli.output import plain

    if not results["trial_a"] or not results["trial_b"]:
        say("No results can be compared: one of the two has no trial.")
        return
    best = f"{plain(results['best_a'])} (trial {results['trial_a']}) and {plain(results['best_b'])} (trial {results['trial_b']})"
    say(f"Best {results['metric']}: {best}.")
    say(f"{metrics_sentence(results)} {weights_sentence(results)}")


def metrics_sentence(results: dict[str, Any]) -> str:
    if results["metrics_equal"] is None:
        return "No validation was made at the same number of batches."
    if results["metrics_equal"]:
        count = results["validations"]
        return f"All metrics of {count} validation{'s' * (count != 1)} are equal."
    return f"The validations differ from batch {results['first_difference_batches']} on."


def weights_sentence(results: dict[str, Any]) -> str:
    if results["weights_equal"] is None:
        return "No checkpoint was saved at the same number of batches."
    batches = results["files"][0]["batches"]
    return f"The weights at batch {batches} are {'equal, bit for bit' if results['weights_equal'] else 'not equal'}."


def record(context: typer.Context, trial: TrialId, json: Json = False) -> None:
    """Show what is on record of a trial's starts: environment, data, code, command line."""
    from tenuto.cli.output import console, print_json, table, when

    found = client(context).get(f"/trials/{trial}/record")
    if json:
        print_json(found)
        return
    origin = found["origin"] or {}
    git = origin.get("git") or {}
    rows: list[tuple[str, Any]] = [
        ("code", found["context_hash"]),
        ("command line", origin.get("command_line")),
        ("overrides", origin.get("overrides") or None),
        ("git", f"{git['commit']}{' with uncommitted changes' if git.get('diff') else ''}" if git else None),
        ("hyperparameters", found["hyperparameters"]),
        ("seed", found["seed"]),
    ]
    if found["parent"]:
        rows.append((found["parent"]["relation"], f"of {found['parent']['trial_id'] or found['parent']['experiment_id']}"))
    screen = console()
    screen.print(table(f"trial {trial}", ("", ""), rows))
    cells = [
        (
            start["allocation_id"],
            when(start["time_us"]),
            (start["environment_hash"] or "-")[:FINGERPRINT_CHARACTERS],
            item["name"] if item else None,
            item["fingerprint"][:FINGERPRINT_CHARACTERS] if item else None,
            "changed" if item and item["name"] in start["changed_data"] else "",
        )
        for start in found["starts"]
        for item in (start["data"] or [None])
    ]
    screen.print(table("starts", ("allocation", "at", "environment", "data", "fingerprint", ""), cells))
    for name, environment in found["environments"].items():
        hardware = environment["hardware"]
        facts = [
            ("image", environment.get("image")),
            ("python", environment["python"]),
            ("platform", environment["platform"]),
            ("hardware", f"{hardware['cpu_model']}, {hardware['cpu_cores']} cores, {hardware['memory_gib']} GiB"),
            ("GPUs", [gpu["name"] for gpu in hardware["gpus"]] or None),
            ("drivers", environment["drivers"] or None),
            ("threads", environment["threads"]),
            ("numerics", environment["numerics"]),
            ("variables", environment["variables"]),
            ("imported packages", {key: environment["packages"][key] for key in environment["loaded"]}),
            ("installed packages", len(environment["packages"])),
        ]
        screen.print(table(f"environment {name[:FINGERPRINT_CHARACTERS]}", ("", ""), facts))
