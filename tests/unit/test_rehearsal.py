"""Steps that a warm process rehearses before it has a trial."""

from __future__ import annotations

import socket
import threading

import pytest
import torch

from tenuto.workers.harness import rehearsal
from tenuto.workers.pytorch.framework import FRAMEWORK, PyTorch


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collects calls by which a torch built for GPUs would look for them."""
    steps: list[str] = []
    step, backward = torch.optim.SGD.step, torch.Tensor.backward

    def seen_step(*arguments: object, **named: object) -> object:
        steps.append("step")
        return step(*arguments, **named)  # type: ignore[arg-type]

    def seen_backward(*arguments: object, **named: object) -> object:
        steps.append("backward")
        return backward(*arguments, **named)  # type: ignore[arg-type,no-untyped-call]

    monkeypatch.setattr(torch.optim.SGD, "step", seen_step)
    monkeypatch.setattr(torch.Tensor, "backward", seen_backward)
    for name in ("cuda", "hip", "xpu"):
        monkeypatch.setattr(torch.version, name, None, raising=False)
    return steps


def test_it_trains_and_leaves_no_thread(stepped: list[str]) -> None:
    threads = set(threading.enumerate())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        rehearsal.rehearse(theirs)
    assert stepped == ["backward", "step"] * 2
    assert set(threading.enumerate()) == threads


def test_it_ends_when_there_is_a_job(stepped: list[str]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(b"a job")
        rehearsal.rehearse(theirs)
    assert not stepped


@pytest.mark.parametrize("built_for", ["cuda", "hip", "xpu"])
def test_a_torch_that_is_built_for_gpus_is_left_alone(
    built_for: str, stepped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver would see all of the node's GPUs, and for good."""
    monkeypatch.setattr(torch.version, built_for, "12.8", raising=False)
    asked: list[object] = []
    monkeypatch.setattr("tenuto.workers.record.environment.capture", lambda *models: asked.append(models))
    for part in FRAMEWORK.rehearsals():
        part()
    assert not stepped
    assert not asked


def test_what_fails_in_it_is_not_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("no driver")

    monkeypatch.setattr(PyTorch, "rehearsals", lambda framework: (broken,))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        rehearsal.rehearse(theirs)


def test_its_threads_are_waited_for_before_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork while a thread of gRPC holds a lock has that lock for ever."""
    go = threading.Event()
    threads: list[threading.Thread] = []

    class Lingering:
        """As gRPC's channel, whose threads outlive its end."""

        _stub = None

        def __init__(self, *_: object) -> None:
            threads.append(threading.Thread(target=go.wait))
            threads[-1].start()

        def close(self) -> None:
            pass

    monkeypatch.setattr("tenuto.workers.connection.agent_client.AgentClient", Lingering)
    monkeypatch.setattr(rehearsal, "imported", tuple)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        rehearsal.rehearse(theirs)
    [lingering] = threads
    with monkeypatch.context() as soon:
        soon.setattr(rehearsal, "THREADS_SECONDS_MAX", 0.0)
        assert not rehearsal.threads_ended()
    waiting = threading.Thread(target=go.set)
    waiting.start()
    assert rehearsal.threads_ended()
    assert not lingering.is_alive()
