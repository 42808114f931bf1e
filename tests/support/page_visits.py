"""What tests of the web page do on each of its pages: sign in, and judge it by the rules for everyone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.accessibility import findings

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, ViewportSize

FADED = """async scheme => {
  const frame = () => new Promise(requestAnimationFrame)
  const changing = () => document.getAnimations().filter(
    one => one.playState === 'running' && one.effect.getComputedTiming().endTime < Infinity)
  while (document.documentElement.dataset.mantineColorScheme !== scheme) await frame()
  do {
    await Promise.allSettled(changing().map(one => one.finished))
    await frame()
    await frame()
  } while (changing().length)
}"""
"""Waits until the page has the colours of this scheme and none of them changes any more."""
STYLED = """(element, scheme) => {
  const root = document.documentElement
  const before = root.dataset.mantineColorScheme
  if (scheme !== null) root.dataset.mantineColorScheme = scheme
  const found = [element, ...element.querySelectorAll('*')].map(one => {
    const style = getComputedStyle(one)
    return [one.localName, style.color, style.backgroundColor, style.fill, style.stroke].join(' ')
  })
  root.dataset.mantineColorScheme = before
  return found
}"""
"""Colours of an element and all in it: those that it has, or those that it has in the moment in which the ground has changed to
a scheme, and no script of the page has run yet."""
TELEPHONE: ViewportSize = {"width": 390, "height": 844}
GIVEN, OWN = "first-otters-juggle-lamps", "quiet walrus eats 3 plums"


def check_accessible(page: Page) -> None:
    """Nothing serious by axe-core's rules, in light and in dark colours; nothing wider than a telephone."""
    from playwright.sync_api import expect

    whole = page.viewport_size
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.evaluate(FADED, scheme)
        found = findings(page)
        assert not found, found
    page.set_viewport_size(TELEPHONE)
    expect(page.locator("html")).to_have_js_property("scrollWidth", TELEPHONE["width"])
    page.set_viewport_size(whole or {})  # type: ignore[typeddict-item]


def check_recolored(page: Page, shown: Locator) -> None:
    """What is shown takes the other scheme's colours together with the ground, not some time later. To be called where nothing
    else changes: the page is in light colours, as `check_accessible` leaves it, and what is shown is of the past."""
    page.evaluate(FADED, "light")
    light = shown.evaluate(STYLED, None)
    at_once = shown.evaluate(STYLED, "dark")
    assert at_once != light
    page.emulate_media(color_scheme="dark")
    page.evaluate(FADED, "dark")
    dark = shown.evaluate(STYLED, None)
    assert len(at_once) == len(dark), "what is shown was not whole yet"
    assert [pair for pair in zip(at_once, dark, strict=True) if pair[0] != pair[1]] == []
    page.emulate_media(color_scheme="light")
    page.evaluate(FADED, "light")


def follow(page: Page, address: str) -> None:
    """Goes to an address as a link of the page does: it is not loaded again, which takes two seconds of a processor."""
    page.evaluate("to => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')) }", address)


def enter(page: Page, name: str) -> None:
    """Signs in for the first time: with the password that an admin gave, and an own one in its place."""
    page.get_by_label("User").fill(name)
    page.locator("input[autocomplete=current-password]").fill(GIVEN)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("New password").fill(f"{OWN} {name}")
    page.get_by_role("button", name="Sign in").click()
