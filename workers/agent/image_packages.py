"""`python -m tenuto.workers.agent.image_packages DIRECTORY`: fills a directory with Tenuto's packages for an agent that runs in
another image, which has none of them; a pod's first container runs it. `DIRECTORY/boot.py agent IMAGE NAME` there starts it."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    from tenuto.workers.agent.runtimes.docker.packages import build_for_agent

    try:
        build_for_agent(Path(sys.argv[1]))
    except OSError as error:
        sys.exit(f"Tenuto's packages cannot be brought into {sys.argv[1]}: {error}.")


if __name__ == "__main__":
    main()
