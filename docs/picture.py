"""Draws docs/images/run.svg from a real experiment: what `--follow` shows at its end, and the verdict on its record.

tenuto up -d && tenuto exp create examples/digits/config.yaml examples/digits --follow
python docs/picture.py 1
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from tenuto.cli.experiment_story import Story
from tenuto.cli.follow import view
from tenuto.client import Client, Target

PICTURE = Path(__file__).parent / "images" / "run.svg"
WIDTH = 120
"""Characters: what GitHub shows beside a README's text without shrinking it much."""
SUBMISSION = "tenuto exp create examples/digits/config.yaml examples/digits --follow"


def draw(experiment: int) -> str:
    """The picture as SVG. Needs the cluster on which the experiment has ended."""
    story = Story(experiment)
    for event in Client(Target.find(None, None)).events(experiment=experiment):
        story.fold(json.loads(event))
    if not story.ended:
        sys.exit(f"Experiment {experiment} has not ended.")
    screen = Console(width=WIDTH, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False)
    screen.print(Text.assemble(("$ ", "dim"), (SUBMISSION, "bold")))
    screen.print(view(story, WIDTH))
    for command in (["exp", "replay", str(experiment), "--verify"], ["log", "verify"]):
        said = subprocess.run(["tenuto", *command], capture_output=True, text=True, check=True).stdout
        screen.print(Text.assemble(("\n$ ", "dim"), (" ".join(["tenuto", *command]), "bold")))
        screen.print(Text("\n".join(line.rstrip() for line in said.strip().splitlines())))
    # Without rich's web fonts: a picture in a README loads nothing, and each text has its length set.
    return screen.export_svg(
        title="tenuto", code_format=re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", type=int, help="id of an experiment that has ended")
    parser.add_argument("--output", type=Path, default=PICTURE)
    options = parser.parse_args()
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(draw(options.experiment))
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
