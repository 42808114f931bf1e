"""Converts each experiment configuration in a checkout of Determined's repository, and counts those that Tenuto's validation
accepts:

    python benchmarks/from_determined.py PATH_TO_CHECKOUT [--notes]

A file counts as an experiment if it is a mapping with `entrypoint` and `searcher`. Files are read, and nothing is run."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import figure, parse

from tenuto.cli.from_determined import Conversion, Kind, convert
from tenuto.schemas.config.errors import ConfigError
from tenuto.schemas.config.reading import load_yaml, parse_config


def experiments(checkout: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(checkout.rglob("*.y*ml")):
        if path.suffix not in (".yaml", ".yml") or not path.is_file():
            continue
        try:
            document = load_yaml(path.read_bytes())
        except ConfigError:
            continue  # templates, and files of several documents
        if isinstance(document, dict) and {"entrypoint", "searcher"} <= set(document):
            yield path, document


def is_accepted(path: Path) -> bool:
    try:
        parse_config(path.read_bytes())
    except ConfigError:
        return False
    return True


def main(checkout: Path, with_notes: bool) -> None:
    found: list[tuple[Path, Conversion]] = [(path, convert(document)) for path, document in experiments(checkout)]
    converted = [conversion for _, conversion in found if conversion.config is not None]
    print(f"{len(found)} experiments; {sum(is_accepted(path) for path, _ in found)} are accepted as they are")
    print(f"{len(converted)} are converted and accepted, {sum(one.is_whole for one in converted)} of them with nothing left out")
    figure("configurations of Determined, accepted", len(converted), "files", beside="all of them", of=len(found))
    reasons: Counter[str] = Counter()
    for path, conversion in found:
        shown = [note for note in conversion.notes if note.kind is Kind.REFUSED]
        if conversion.config is None:
            print(f"  {path.relative_to(checkout)}")
            for note in shown:
                print(f"    {note}")
        reasons.update(note.path.split("[")[0] for note in conversion.notes if note.kind is Kind.LEFT_OUT)
        if with_notes:
            print(f"  {path.relative_to(checkout)}", *conversion.notes, sep="\n      ")
    print("left out:", ", ".join(f"{path} {count}" for path, count in reasons.most_common()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--notes", action="store_true")
    given = parse(parser)
    main(given.checkout, given.notes)
