"""Takes the pictures of the web page in docs/images/page from a real cluster, on which real searches have trained.

    python docs/screenshots.py [--only NAME ...] [--keep DIRECTORY]

Needs Debian's Chromium (`make system-packages`) and the built page (`make page`). Takes some minutes: two searches train to their
end, another and a gang are under way, and a third waits for slots.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tenuto.client import Client, Target
from tenuto.client.messages import items

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images/page"
TENUTO = Path(sys.executable).with_name("tenuto")
DIGITS = ROOT / "examples/digits"
PASSWORD = "first-otters-juggle-lamps"
SLOTS = 4
WIDE, NARROW = (1280, 860), (390, 844)
"""Pixels: a small laptop, and a telephone."""
QUALITY = 82
"""Of WebP: text stays sharp, and a picture has some 40 KB."""
SETTLE_SECONDS = 2.5
"""Lines are drawn, and what follows the log has caught up."""
SECONDS_MAX = 900.0
BASELINE = {"name": "random", "max_trials": 6, "max_length": {"epochs": 6}}
LONG = {"name": "random", "max_trials": 8, "max_concurrent_trials": 2, "max_length": {"epochs": 400}}
"""Under way while the pictures are taken."""
METRIC = {"metric": "accuracy", "smaller_is_better": False}
NARROW_ONES = ("experiments", "experiment", "trial")


def submit(directory: Path, token: str, name: str, **sections: dict[str, Any]) -> int:
    """The example, with other sections in its configuration. The id of the experiment."""
    config = yaml.safe_load((DIGITS / "config.yaml").read_text()) | {"name": name} | sections
    file = directory / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    command = [TENUTO, "exp", "create", file, DIGITS, "--json"]
    done = subprocess.run(command, env=os.environ | {"TENUTO_TOKEN": token}, stdout=subprocess.PIPE, check=True)
    return int(json.loads(done.stdout)["id"])


def until(what: str, holds: Any) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not holds():
        if time.monotonic() > end:
            sys.exit(f"Not seen in {SECONDS_MAX:.0f} s: {what}.")
        time.sleep(1.0)


def train(directory: Path, client: Client) -> dict[str, str]:
    """Path of each page, by the name of its picture."""
    tokens = {}
    for name in ("ada", "grace"):
        tokens[name] = client.post("/users", {"name": name, "admin": name == "ada"})["token"]
        client.put(f"/users/{name}/password", {"password": PASSWORD})
    search = submit(directory, tokens["ada"], "digits")
    baseline = submit(directory, tokens["grace"], "digits-random", searcher=BASELINE | METRIC)
    both = (search, baseline)
    until("the end of both", lambda: all(client.get(f"/experiments/{one}")["state"] == "completed" for one in both))
    often: dict[str, Any] = {"min_validation_period": {"epochs": 2}}
    submit(directory, tokens["grace"], "digits-long", searcher=LONG | METRIC, **often)
    gang = often | {"resources": {"slots_per_trial": 2}, "searcher": LONG | METRIC | {"max_concurrent_trials": 1}}
    two_slots = submit(directory, tokens["ada"], "digits-two-slots", **gang)
    submit(directory, tokens["grace"], "digits-waits", searcher=LONG | METRIC, **often)
    until("a gang under way", lambda: client.get(f"/experiments/{two_slots}")["best_metric"] is not None)
    best = client.get(f"/experiments/{search}")["best_trial_id"]
    own = f"/experiments/{search}"
    stops = items(client.get("/events", experiment=search, type="TrialStopped"))
    middle = stops[len(stops) // 2]["position"]
    return {
        "experiments": "/",
        "new": "/new",
        "experiment": own,
        "experiment-then": f"{own}?tab=trials&at={middle}",
        "hyperparameters": f"{own}?tab=hyperparameters",
        "rungs": f"{own}?tab=rungs&trial={best}",
        "trial": f"/trials/{best}?tab=runs",
        "compare": f"/compare?items={search},{baseline}",
        "cluster": "/cluster",
        "queue": "/queue",
        "events": f"/events?experiment={search}",
    }


def sign_in(page: Page) -> None:
    """As ada, who chooses a password of her own the first time."""
    page.get_by_label("User").fill("ada")
    page.locator("input[autocomplete=current-password]").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("New password").or_(page.get_by_role("button", name="Sign out")).first.wait_for()
    if page.get_by_label("New password").is_visible():
        page.get_by_label("New password").fill("quiet walrus eats 3 plums")
        page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Experiments").wait_for()


def take(page: Page, path: str, file: Path) -> None:
    from PIL import Image

    page.goto(path)
    page.wait_for_timeout(SETTLE_SECONDS * 1000)
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        picture.save(file, "WEBP", quality=QUALITY, method=6)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size >> 10} KB")


def take_all(browser: Browser, url: str, paths: dict[str, str]) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    kept = None
    for scheme, (width, height) in (("light", WIDE), ("dark", WIDE), ("narrow", NARROW)):
        context = browser.new_context(
            base_url=url,
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
            storage_state=kept,
        )
        page = context.new_page()
        page.goto("/")
        if kept is None:
            sign_in(page)
            kept = context.storage_state()
        for name, path in paths.items():
            if scheme != "narrow" or name in NARROW_ONES:
                take(page, path, IMAGES / f"{name}{'' if scheme == 'light' else f'-{scheme}'}.webp")
        context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="*", metavar="NAME", help="Only these pages.")
    parser.add_argument(
        "--keep", type=Path, metavar="DIRECTORY", help="Data of the cluster, kept; one that has trained is used again."
    )
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    directory = Path(given.keep or tempfile.mkdtemp(prefix="tenuto-screenshots-")).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    os.environ["TENUTO_DATA_DIRECTORY"] = str(directory / "cluster")
    subprocess.run([TENUTO, "up", "--detach", "--cpu-slots", str(SLOTS // 2), "--agents", "2"], check=True)
    try:
        client, pages = Client(Target.find(None, None)), directory / "pages.json"
        if not pages.exists():
            pages.write_text(json.dumps(train(directory, client)))
        paths = {name: path for name, path in json.loads(pages.read_text()).items() if not given.only or name in given.only}
        with sync_playwright() as playwright:
            found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
            take_all(browser, client.target.url, paths)
            browser.close()
    finally:
        subprocess.run([TENUTO, "down"], check=False)
        if given.keep is None:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
