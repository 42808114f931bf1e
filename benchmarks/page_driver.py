"""A browser that measures what somebody at the page would wait for."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable

from playwright.sync_api import CDPSession, Page, sync_playwright

OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--enable-precise-memory-info"]
SECONDS_MAX = 120
_WATCH = """
window.__seen = {}
window.__watch = wanted => {
  const look = () => {
    for (const [name, selector] of Object.entries(wanted))
      if (!(name in window.__seen) && document.querySelector(selector)) window.__seen[name] = performance.now()
    if (Object.keys(wanted).some(name => !(name in window.__seen))) requestAnimationFrame(look)
  }
  look()
}
"""
"""What is wanted is looked for at every frame, so a time is that of the frame in which it was there."""
_FRAME = "const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)))\n"
"""Resolves behind the next frame."""


class Driver:
    GIVEN = "first-otters-juggle-lamps"

    def __init__(self, page: Page, devtools: CDPSession) -> None:
        self.page, self._devtools = page, devtools
        self._rng = random.Random(1)
        self._ends: list[Callable[[], None]] = []

    @staticmethod
    def start(url: str) -> Driver:
        """Signed in. Everything about a driver happens in the thread that started it."""
        playwright = sync_playwright().start()
        found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=found, args=OPTIONS)
        context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 900})
        context.set_default_timeout(SECONDS_MAX * 1000)
        context.add_init_script(_WATCH)
        page = context.new_page()
        page.goto("/")
        page.get_by_label("User").fill("ada")
        page.locator("input[autocomplete=current-password]").fill(Driver.GIVEN)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_label("New password").fill("quiet walrus eats 3 plums")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="Sign out").wait_for()
        driver = Driver(page, context.new_cdp_session(page))
        driver._ends = [browser.close, playwright.stop]
        return driver

    def close(self) -> None:
        for end in self._ends:
            end()

    def open(self, address: str, wanted: dict[str, str]) -> dict[str, float]:
        """Milliseconds from the navigation to the frame in which each selector was found."""
        self.page.goto("about:blank")
        self._devtools.send("Network.clearBrowserCache")
        self.page.goto(address, wait_until="commit")
        self.page.evaluate("wanted => window.__watch(wanted)", wanted)
        self.page.wait_for_function("count => Object.keys(window.__seen).length === count", arg=len(wanted))
        return dict(self.page.evaluate("window.__seen"))

    def script_kilobytes(self) -> float:
        """Of all scripts that were loaded, as they were sent."""
        of = "performance.getEntriesByType('resource').filter(one => one.name.endsWith('.js')).map(one => one.encodedBodySize)"
        return float(sum(self.page.evaluate(of))) / 1e3

    def heap_megabytes(self) -> float:
        self._devtools.send("HeapProfiler.collectGarbage")
        return float(self.page.evaluate("performance.memory.usedJSHeapSize")) / 1e6

    def hover(self, selector: str, moves: int = 60) -> list[float]:
        """Milliseconds from each move of the pointer to the end of the next frame."""
        return list(
            self.page.evaluate(
                f"""async ([selector, moves]) => {{
                    {_FRAME}
                    const over = document.querySelector(selector), box = over.getBoundingClientRect(), taken = []
                    for (let at = 0; at < moves; at++) {{
                        const place = {{ bubbles: true, clientX: box.left + (box.width * (at + 0.5)) / moves,
                                         clientY: box.top + box.height * (0.2 + 0.6 * Math.abs(Math.sin(at))) }}
                        const begin = performance.now()
                        over.dispatchEvent(new MouseEvent('mousemove', place))
                        await frame()
                        taken.push(performance.now() - begin)
                    }}
                    return taken }}""",
                [selector, moves],
            )
        )

    def brush(self, moves: int = 20) -> list[float]:
        """Milliseconds from each key on an axis to the end of the frame after the number of chosen trials was renewed."""
        return list(
            self.page.evaluate(
                f"""async moves => {{
                    {_FRAME}
                    const axis = document.querySelector('rect[role=slider]'), taken = []
                    for (let at = 0; at < moves; at++) {{
                        const begin = performance.now()
                        const before = axis.getAttribute('aria-valuetext')
                        const key = at === 0 || Math.floor((at - 1) / 8) % 2 ? 'ArrowUp' : 'ArrowDown'
                        axis.dispatchEvent(new KeyboardEvent('keydown', {{ key, bubbles: true }}))
                        for (let waits = 0; waits < 600 && axis.getAttribute('aria-valuetext') === before; waits++) await frame()
                        await frame()
                        taken.push(performance.now() - begin)
                    }}
                    return taken }}""",
                moves,
            )
        )

    def frames(self, count: int = 60) -> list[float]:
        """Milliseconds between frames while nothing happens."""
        return self._frames("null", count)

    def scroll(self, count: int = 120) -> list[float]:
        return self._frames("document.querySelector('section[aria-label=Trials]')", count)

    def _frames(self, scrolled: str, count: int) -> list[float]:
        return list(
            self.page.evaluate(
                f"""async count => {{
                    const scrolled = {scrolled}, taken = []
                    let before = await new Promise(requestAnimationFrame)
                    for (let at = 0; at < count; at++) {{
                        if (scrolled) scrolled.scrollTop += 120
                        const now = await new Promise(requestAnimationFrame)
                        taken.push(now - before)
                        before = now
                    }}
                    return taken }}""",
                count,
            )
        )

    def slide(self, events: int, moves: int = 30) -> list[float]:
        """Milliseconds from a new moment in the address to the end of the frame after its time was shown."""
        positions = [self._rng.randrange(events // 20, events) for _ in range(moves)]
        return list(
            self.page.evaluate(
                f"""async positions => {{
                    {_FRAME}
                    const taken = [], shown = () => document.querySelector('[data-moment]').dataset.moment
                    for (const at of positions) {{
                        const begin = performance.now()
                        history.pushState(null, '', `?tab=rungs&at=${{at}}`)
                        dispatchEvent(new PopStateEvent('popstate'))
                        for (let waits = 0; waits < 6000 && shown() !== String(at); waits++) await frame()
                        await frame()
                        taken.push(performance.now() - begin)
                    }}
                    return taken }}""",
                positions,
            )
        )

    def busy_ms(self, seconds: float) -> float:
        """Time that the page's main thread worked in so many seconds."""
        self._devtools.send("Performance.enable")

        def worked() -> float:
            metrics = self._devtools.send("Performance.getMetrics")["metrics"]
            return next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration") * 1e3

        before = worked()
        self.page.wait_for_timeout(seconds * 1e3)
        return worked() - before
