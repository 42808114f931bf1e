"""State that a script gives to `run.checkpoint.save_state`, and changes while it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_stand_in import AgentStandIn, WorkerBench
from tests.support.checkpoint_reports import stored_files
from tests.support.core_api_scripts import fail, script
from tests.support.reactions import stop_at

SCRIPT = """
import os, random, signal, tenuto, torch

with tenuto.init() as run:
    run.epoch_batches = 10
    torch.manual_seed(run.trial_seed)
    chance = random.Random(run.trial_seed)
    model = torch.nn.Linear(300, 300)
    optimizer = torch.optim.Adam(model.parameters())
    memory, words, steps = torch.zeros(50, 50), [], 0
    if run.checkpoint.latest is not None:
        assert run.checkpoint.latest.metadata == {"by": "hand"}
        state = run.checkpoint.load_state()
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch"])
        chance.setstate(state["chance"])
        memory, words, steps = state["memory"], state["words"], run.checkpoint.latest.steps
        assert state["same"] is words and state["part"].data_ptr() == memory[2:].data_ptr()
        assert isinstance(state["odd"], BaseException)
    for operation in run.operations():
        while steps < operation.steps and not run.should_preempt():
            optimizer.zero_grad()
            (model(torch.randn(4, 300)).square().mean() + chance.random()).backward()
            optimizer.step()
            memory.add_(chance.random())
            words.append(str(steps))
            steps += 1
            if steps % 3 == 0:
                run.checkpoint.save_state(steps, {
                    "model": model.state_dict(), "optimizer": optimizer.state_dict(), "torch": torch.get_rng_state(),
                    "chance": chance.getstate(), "memory": memory, "part": memory[2:], "words": words, "same": words,
                    "odd": ValueError(steps),
                }, {"by": "hand"}, wait=os.environ.get("TEST_WAIT") == "1")
                if os.environ.get("TEST_WAIT") == "1":
                    assert run.checkpoint.latest.steps == steps
            if steps == int(os.environ.get("TEST_DIE_AT", "0")):
                run.checkpoint.wait()
                os.kill(os.getpid(), signal.SIGKILL)
        if run.should_preempt():
            break
        total = sum(float(value.double().sum()) for value in model.state_dict().values()) + float(memory.sum()) + len(words)
        run.report_validation(steps, {run.metric: total})
"""


def ended(trial: WorkerBench, agent: AgentStandIn, **environment: str) -> AgentStandIn:
    agent.react = stop_at(2)
    run = trial.start(agent, **environment)
    assert run.wait() == 0, run.output()
    return agent


def of_batches(agent: AgentStandIn) -> dict[int, Any]:
    return {report.batches: report for report in agent.checkpoints()}


def test_what_was_given_is_saved_as_it_was_and_resumed_from(tmp_path: Path) -> None:
    (tmp_path / "waits").mkdir()
    (tmp_path / "beside").mkdir()
    with script(tmp_path / "waits", SCRIPT) as trial:
        waited = ended(trial, trial.agent(2), TEST_WAIT="1")
        expected = {batches: report.files for batches, report in of_batches(waited).items()}
        metrics = [report.metrics for report in waited.validations()]
        assert sorted(expected) == [3, 6, 9, 12, 15, 18]
    with script(tmp_path / "beside", SCRIPT) as trial:
        agent = trial.agent(2)
        run = trial.start(agent, TEST_DIE_AT="17")
        assert run.wait() == -9, run.output()
        before = of_batches(agent)
        assert before, "reports of the last ones may be lost with their process"
        resumed = ended(trial, trial.agent(2, agent.checkpoints()[-1]))
        after = of_batches(resumed)
        assert sorted([*before, *after]) == sorted(expected)
        found = {batches: report.files for batches, report in (before | after).items()}
        assert found == expected
        assert resumed.validations()[-1].metrics == metrics[-1]
        assert "user.pt" in stored_files(after[18]), "only what must be is pickled"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("[1]", "the state must be a dict, not list"),
        ("{'a': lambda: 1}", "keep only picklable values"),
    ],
)
def test_what_cannot_be_saved_is_said(tmp_path: Path, state: str, said: str) -> None:
    text = f"import tenuto\nwith tenuto.init() as run:\n    run.epoch_batches = 10\n    run.checkpoint.save_state(1, {state})\n"
    with script(tmp_path, text) as trial:
        assert said in fail(trial, trial.agent(1))


def test_files_of_another_way_of_saving_have_no_state(tmp_path: Path) -> None:
    text = """
import tenuto
with tenuto.init() as run:
    run.epoch_batches = 10
    with run.checkpoint.save(1) as directory:
        (directory / "own").write_text("own")
    run.checkpoint.load_state()
"""
    with script(tmp_path, text) as trial:
        assert "was not saved by run.checkpoint.save_state" in fail(trial, trial.agent(1))
