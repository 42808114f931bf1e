"""Writes the blocking client: `src/tenuto/client/blocking` is `src/tenuto/client/aio` without `async` and `await`, so that there
is one source of what the client does. `make docs` writes it, and a test compares.

What differs by nature stands in both folders and is written by hand: how requests travel (`transport.py`), and how to wait
(`pauses.py`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "src" / "tenuto" / "client"
BY_HAND = frozenset({"__init__.py", "transport.py", "pauses.py"})
NAMES = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AsyncGenerator": "Generator",
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aio": "blocking",
}
NOTE = "# Made from aio/{name} by docs/blocking_client.py: change that one, then `make docs`.\n"


def blocking(name: str, source: str) -> str:
    text = re.sub(r"\basync (def|for|with)\b", r"\1", source)
    text = re.sub(r"\bawait ", "", text)
    text = re.sub(r"\bAsyncGenerator\[(.*), None\]", r"Generator[\1, None, None]", text)
    for old, new in NAMES.items():
        text = re.sub(rf"\b{old}\b", new, text)
    text = re.sub(r"\bAsync(?=[A-Z])", "", text)
    return _formatted(NOTE.format(name=name) + text, FOLDER / "blocking" / name)


def _formatted(text: str, path: Path) -> str:
    for arguments in (["check", "--quiet", "--select", "I,UP028", "--fix", "--unsafe-fixes"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(path), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


def made() -> dict[Path, str]:
    names = sorted(path.name for path in (FOLDER / "aio").glob("*.py") if path.name not in BY_HAND)
    return {FOLDER / "blocking" / name: blocking(name, (FOLDER / "aio" / name).read_text()) for name in names}


def main() -> None:
    for path, text in made().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
