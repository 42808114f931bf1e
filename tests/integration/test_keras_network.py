"""A Keras trial whose ranks are on two nodes: TensorFlow's own strategy between network namespaces, real processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.integration.test_gang_network import namespaces as namespaces
from tests.integration.test_keras_ranks import Bench, weights_of
from tests.support import real_parts
from tests.support.gang_bench import Network
from tests.support.reactions import stop_at
from tests.support.warm_starts import KERAS, WarmStarts

real_parts.package("tensorflow")
END = 4


def test_ranks_on_two_nodes_train_like_two_on_one(tmp_path: Path, namespaces: tuple[str, str]) -> None:
    variables = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    found = []
    with Bench(tmp_path / "one", "tensorflow", "ddp", random=True) as bench:
        agent, _ = bench.train(2, END)
        found.append(weights_of(agent))
    starts = [WarmStarts(KERAS["tensorflow"], inside=("ip", "netns", "exec", name)) for name in namespaces]
    try:
        with Bench(tmp_path / "two", "tensorflow", "ddp", random=True) as bench:
            bench.networks = tuple(Network(f"10.123.0.{index}", "cable", start) for index, start in enumerate(starts, start=1))
            agent, runs = bench.gang(1, END, nodes=2, **variables)
            agent.react = stop_at(END)
            assert [run.wait() for run in runs] == [0, 0], "\n".join(run.output() for run in runs)
            found.append(weights_of(agent))
    finally:
        for start in starts:
            start.close()
    for name, value in found[0].items():
        np.testing.assert_array_equal(found[1][name], value)
