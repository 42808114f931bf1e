"""The trained curves as a table for `tenuto sim search --curves`: `python benchmarks/curves/table.py curves.csv config.yaml`.

Writes the table (CSV) and a configuration with its search space, for
`tenuto sim search config.yaml --curves curves.csv --methods random,hyperband`.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
from figures import figure, parse

WHOLE = {"batch_size", "layers", "width"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("config", type=Path)
    given = parse(parser)
    file = np.load(Path(__file__).with_name("fashion_mlp.npz"))
    names, images = [str(name) for name in file["names"]], int(file["validation_images"])
    with given.table.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow([*names, *(f"loss@{length}" for length in file["lengths"])])
        for place, errors in zip(file["hyperparameters"], file["errors"], strict=True):
            values = [int(value) if name in WHOLE else float(value) for name, value in zip(names, place, strict=True)]
            writer.writerow([*values, *(int(wrong) / images for wrong in errors)])
    search = {"name": "asha", "metric": "error", "max_length": {"batches": int(file["lengths"][-1])}, "max_trials": 1_000}
    whole = {
        "name": "trained-curves",
        "entrypoint": "model_def:Trial",
        "hyperparameters": json.loads(str(file["space"])),
        "searcher": search | {"divisor": 4, "max_rungs": 5},
    }
    given.config.write_text(yaml.safe_dump(whole, sort_keys=False))
    print(f"{given.table}: {len(file['errors']):,} curves; {given.config}: their search space")
    figure("curves in the table", len(file["errors"]), "curves")


if __name__ == "__main__":
    main()
