"""A real browser for tests of the web page: Debian's Chromium, driven by Playwright, on the page that `make page` built. Its
build without windows is the same engine, and takes a fifth less of a processor."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tenuto.services.gateway.http.page import BUILT
from tests.support.waiting import SECONDS_MAX

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run",
    "--disable-quic", "--disable-sync",
]  # fmt: skip


def executable() -> str | None:
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


def lack() -> str:
    """What Debian's packages would bring for these tests, in one sentence; empty where nothing is missing."""
    return "" if executable() else "There is no Chromium: make system-packages."


def lack_of_page() -> str:
    """Empty where the page is built, or where its packages are there, so that it should have been."""
    if (BUILT / "index.html").is_file() or (ROOT / "page/node_modules/.installed-for").is_file():
        return ""
    return "The page is not built, as its packages could not be fetched: make page."


@contextmanager
def browsing() -> Iterator[Browser]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=SECONDS_MAX * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=OPTIONS)
        yield browser
        browser.close()


@contextmanager
def visiting(browser: Browser, url: str) -> Iterator[Page]:
    """A page of a new visitor. What it wrote to the console as an error fails the test: a refused request may be meant, a script
    that failed or was kept out is not."""
    context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(SECONDS_MAX * 1000)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if _is_wrong(message) else None)
    yield page
    context.close()
    if wrong:
        pytest.fail(f"the page failed: {wrong}")


def _is_wrong(message: Any) -> bool:
    return message.type == "error" and not message.text.startswith("Failed to load resource")
