"""One cheap experiment of each search method, and what the page shows of it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tenuto.schemas.envelope import Event
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tests.support.live_cluster import ROOT, LiveCluster
from tests.support.page_visits import check_accessible

if TYPE_CHECKING:
    from playwright.sync_api import Page

MODEL = ROOT / "tests" / "e2e" / "models" / "counted"
HALVED = {"max_trials": 2, "divisor": 2, "max_rungs": 2}
"""The least of which one trial goes on and one does not."""
FEW = {"max_trials": 3, "startup_trials": 2}
SEARCHERS: dict[str, dict[str, Any]] = {
    "single": {},
    "random": {"max_trials": 2},
    "sobol": {"max_trials": 2},
    "grid": {},
    "sha": HALVED,
    "hyperband": {"divisor": 2, "max_rungs": 2},
    "asha": HALVED,
    "asha stopping": HALVED | {"mode": "stopping"},
    "adaptive_asha": HALVED | {"max_trials": 4},
    "bohb": HALVED,
    "pbt": {"population_size": 2, "generations": 2, "truncate_fraction": 0.5},
    "tpe": FEW,
    "gp": FEW,
    "cmaes": FEW,
    "nsga2": FEW | {"objectives": [{"metric": "size"}]},
    "custom": {"max_trials": 3},
}
"""Settings beside the common ones, by the experiment's name: the method and, behind a space, what is special about it."""


def configured(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    method = name.partition(" ")[0]
    searcher = {"name": method, "metric": "loss", "max_length": {"batches": 4}} | settings
    if method != "single":
        searcher["max_concurrent_trials"] = 2
    rate: Any = {"type": "double", "minval": 0.1, "maxval": 1.0} | ({"count": 3} if method == "grid" else {})
    return {
        "name": name,
        "entrypoint": "train.py",
        "hyperparameters": {"rate": 0.5 if method == "single" else rate},
        "searcher": searcher,
        "reproducibility": {"experiment_seed": 7},
    }


def search_all(cluster: LiveCluster) -> dict[str, int]:
    """Runs them all at once, to their end. Their ids by name."""
    client = cluster.client()
    made = {name: client.create_experiment(configured(name, settings), MODEL) for name, settings in SEARCHERS.items()}
    cluster.cli("search", "run", f"{MODEL / 'best_of_three.py'}:BestOfThree", str(made["custom"].id))
    for experiment in made.values():
        experiment.wait()
    return {name: experiment.id for name, experiment in made.items()}


def look_at_rungs(page: Page, events: list[Event]) -> None:
    """Each trial stands once at each rung of its bracket at which the record compares it, and lines lead to its next one."""
    from playwright.sync_api import expect

    stands, brackets = set(), set()
    for event in events:
        if isinstance(event.data, (TrialPaused, TrialExtended, TrialStopped)) and "metric" in event.data.reason.numbers:
            numbers = event.data.reason.numbers
            stands.add((event.data.trial_id, numbers.get("bracket"), numbers["length"]))
            brackets.add((numbers.get("bracket"), numbers["length"]))
    picture = page.get_by_role("group", name="Rungs of the search by loss")
    expect(picture.get_by_role("button")).to_have_count(len(stands))
    expect(picture.get_by_role("button", name="waits")).to_have_count(0)
    expect(picture.get_by_text(re.compile(r"^bracket \d$"))).to_have_count(sum(one is not None for one, _ in brackets))
    expect(picture.get_by_text(re.compile(r"^\d+ batch(es)?$"))).to_have_count(len(brackets))
    picture.get_by_role("button", name="completed").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="Trial")).to_contain_text("Trained to the full length of 4 batches")


def look_at_lineage(page: Page, events: list[Event]) -> None:
    """Who copied whom, what was changed, and the same at an earlier moment."""
    from playwright.sync_api import expect

    asked = [event.data for event in events if isinstance(event.data, TrialRequested)]
    copy = next(data for data in asked if data.parent_trial_id is not None)
    picture = page.get_by_role("group", name=f"Lineage of {len(asked)} trials")
    expect(picture.get_by_role("button")).to_have_count(len(asked))
    chosen = picture.get_by_role("button", name=f"Trial {copy.trial_id}, copy of trial {copy.parent_trial_id} at")
    chosen.focus()
    page.keyboard.press("Enter")
    told = page.get_by_role("status").filter(has_text=f"Trial {copy.trial_id}")
    expect(told).to_contain_text(f"A copy of trial {copy.parent_trial_id}, whose loss was")
    changed = told.get_by_role("table", name="Hyperparameters that were changed")
    parent = next(data for data in asked if data.trial_id == copy.parent_trial_id)
    values = [json.dumps(data.hyperparameters["rate"]) for data in (parent, copy)]
    expect(changed.get_by_role("row", name="rate")).to_contain_text("".join(values))
    check_accessible(page)
    slider = page.get_by_role("slider", name="Moment of the log")
    slider.focus()
    page.keyboard.press("Home")
    expect(page.get_by_role("group", name="Lineage of 1 trials").get_by_role("button")).to_have_count(1)
    page.keyboard.press("End")
    expect(picture).to_be_visible()


def look_at_what_if(page: Page, cluster: LiveCluster) -> None:
    """Another policy, chosen in the form and kept by the address: figures as the gateway has them, and two pictures."""
    from playwright.sync_api import expect

    page.goto("/queue")
    question = page.get_by_role("region", name="What if")
    question.get_by_label("this pool shared by").first.click()
    page.get_by_role("option", name="fair share").click()
    question.get_by_role("button", name="Simulate").click()
    table = question.get_by_role("table", name="What happened and what would have happened")
    heads = ["What happened", "The same, simulated", "With policy fair share"]
    expect(table.get_by_role("columnheader")).to_have_text(["Pool default", *heads])
    answer = cluster.client().get("/pools/default/what-if", policy="fair_share")
    ran = [str(course["figures"]["trials"]) for course in answer["courses"]]
    assert int(ran[0]) > 30
    expect(table.get_by_role("row", name=re.compile("^Trials")).get_by_role("cell")).to_have_text(["Trials", *ran])
    for head in (heads[0], heads[2]):
        course = question.get_by_role("region", name=head, exact=True)
        expect(course.get_by_role("img", name="Slots by time: 2 slots")).to_be_visible()
    check_accessible(page)
    page.reload()
    expect(table).to_be_visible()
    question.get_by_role("button", name="Clear").click()
    expect(table).to_have_count(0)
