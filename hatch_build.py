"""Builds the web page into what pip installs. An editable install goes without: `make page` builds it in the checkout."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WITHOUT_PAGE = "TENUTO_WITHOUT_PAGE"
"""Set to 1, it installs without the page, where npm's registry cannot be reached."""


class PageHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        # A source distribution carries the built page and not its source.
        if version == "editable" or os.environ.get(WITHOUT_PAGE) == "1" or not (root / "page").is_dir():
            return
        sys.path.insert(0, str(root / "page"))
        import build

        try:
            build.install()
            build.run("build")
        except build.NotBuilt as error:
            raise RuntimeError(f"Tenuto's web page could not be built: {error} {WITHOUT_PAGE}=1 installs without it.") from error
