"""What a page has against people who cannot see it, or not all colours, or have no mouse: axe-core's rules in the open page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = Path(__file__).parents[2] / "page/node_modules/axe-core/axe.min.js"
GRAVE = ("serious", "critical")


def findings(page: Page) -> list[str]:
    """Serious and critical ones, each with the elements that it is about. The page's policy allows no script of ours: what the
    browser's debugger evaluates is not under it."""
    page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(all => all.violations)")
    return [
        f"{item['id']}: {item['help']}: {node['target']} {node['html'][:160]} {node['failureSummary'][:200]}"
        for item in found
        if item["impact"] in GRAVE
        for node in item["nodes"]
    ]
