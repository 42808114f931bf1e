"""Kills of a trial at random moments, while checkpoints are written and uploaded beside its training: `python
benchmarks/checkpoint_kills.py [--kills 200]`.

The product's training loop trains a small trial that saves every two batches, into a directory and into a real S3 server
(SeaweedFS) on this machine, and is killed (SIGKILL) at a random moment; another process goes on from the last checkpoint that
was reported. After each kill the program stops with an error unless every reported checkpoint is there and whole, every manifest
names only what is whole, and each checkpoint has, byte for byte, the files of a trial that waited for its checkpoints and that
nobody killed.

amid       kills after which the store held something unfinished: they came while a checkpoint was written or sent
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from figures import figure, parse

from tests.support.killed_training import KilledTraining
from tests.support.s3_server import S3Server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="half of them with each store")
    parser.add_argument("--width", type=int, default=300, help="of the model: its state has 16 bytes for each of width x width")
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="on the disk that is used (default: here)")
    options = parse(parser, kills=2, width=40)
    with tempfile.TemporaryDirectory(prefix=".kills-", dir=options.directory) as name:
        (server := S3Server(Path(name) / "s3")).start()
        trial = KilledTraining(Path(name), width=options.width)
        try:
            for kind, store in (("directory", None), ("S3", server)):
                if store is not None:
                    store.make_bucket(store.bucket)
                trial.move(store)
                trial.kills = trial.amid = trial.checkpoints = trial.resumed = 0
                while trial.kills < options.kills // 2:
                    trial.kill()
                print(
                    f"{kind}: {trial.kills} kills, {trial.amid} amid a checkpoint; {trial.checkpoints} checkpoints reported and "
                    f"compared, {trial.resumed} resumes; none lost, none half recorded, none with other bytes"
                )
                figure(f"kills without a lost or half checkpoint, {kind}", trial.kills, "kills", bar=f"{options.kills // 2}")
        finally:
            trial.close()
            server.kill()


if __name__ == "__main__":
    main()
