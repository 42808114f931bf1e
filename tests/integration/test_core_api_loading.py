"""A script that cannot load its checkpoint: whether the trial is over, or is restarted."""

from __future__ import annotations

from pathlib import Path

from tenuto.schemas.events.run import EXIT_CODE_WILL_REPEAT
from tests.support.core_api_scripts import fail, script
from tests.support.reactions import stop_at

LOADS = """
import json, os, tenuto
with tenuto.init() as run:
    if run.checkpoint.latest is not None:
        with run.checkpoint.restore() as directory:
            state = json.loads((directory / "state.json").read_text())
            if os.environ["FAILS"] == "training":
                run.should_preempt()
            print(state["another"])
    run.epoch_batches = 1
    for operation in run.operations():
        with run.checkpoint.save(operation.steps) as directory:
            (directory / "state.json").write_text("{}")
        run.report_validation(operation.steps, {"total": 1.0})
"""


def test_an_error_in_loading_ends_the_trial_at_once_and_one_in_training_does_not(tmp_path: Path) -> None:
    with script(tmp_path, LOADS) as bench:
        first = bench.agent(1)
        first.react = stop_at(1)
        assert bench.start(first, FAILS="loading").wait() == 0
        loading = bench.agent(2, first.checkpoints()[-1])
        run = bench.start(loading, FAILS="loading")
        assert run.wait() == EXIT_CODE_WILL_REPEAT, run.output()
        sentence = loading.error_file.read_text()
        assert sentence.startswith("train.py:9: KeyError: 'another'")
        assert "cannot be loaded, and a restart would not help" in sentence
        training = bench.agent(2, first.checkpoints()[-1])
        fail(bench, training, FAILS="training")
        (bench.context_directory / "train.py").write_text("import tenuto\nwith tenuto.init() as run\n")
        run = bench.start(bench.agent(1))
        assert run.wait() == EXIT_CODE_WILL_REPEAT, run.output()


SAYS = """
import tenuto

with tenuto.init() as run:
    run.epoch_batches = 1
    steps = run.checkpoint.latest.steps if run.checkpoint.latest else 0
    if steps < 2:
        for _ in range(2):
            run.checkpoint.not_exact("the replay   buffer is not saved")
    for operation in run.operations():
        while steps < operation.steps:
            steps += 1
            with run.checkpoint.save(steps) as directory:
                (directory / "steps.txt").write_text(str(steps))
        run.report_validation(steps, {"total": 1.0})
"""


def test_what_a_script_says_it_leaves_out_is_on_record(tmp_path: Path) -> None:
    sentence = "the replay buffer is not saved"
    with script(tmp_path, SAYS) as bench:
        source = None
        for length, said in ((2, 1), (4, 0)):  # the second goes on from the first, and does not say it again
            agent = bench.agent(length, source)
            agent.react = stop_at(length)
            run = bench.start(agent)
            assert run.wait() == 0, run.output()
            assert run.output().count(f"this trial is not resumed exactly: {sentence}") == said
            source = agent.checkpoints()[-1]
            assert source.breaks == (sentence,)
