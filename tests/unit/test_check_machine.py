"""Judgments of `tenuto check`: which facts of a machine are a problem, and what is advised."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.checking.findings import MachineFinding, exit_code
from tenuto.checking.machine import DriverFacts, MachineFacts, TorchDevice, TorchFacts, has_code, judged, judged_devices
from tenuto.checking.training import compared, kinds, size_for
from tenuto.schemas.events.agent import Slot

GIB = 1 << 30
GOOD = MachineFacts(
    python="3.11.7",
    system="Linux",
    cores=8,
    memory_bytes=32 * GIB,
    data_directory="/data",
    free_bytes=100 * GIB,
    file_system="ext4",
    fsync_seconds=0.002,
    shared_memory_bytes=16 * GIB,
    open_files_max=65_536,
    clock_synchronized=True,
    port=8080,
)
H100 = TorchDevice("H100", (9, 0), 80 * GIB)
CUDA_TORCH = TorchFacts(
    version="2.9", cuda="12.8", cuda_available=True, architectures=("sm_80", "sm_90", "compute_90"), devices=(H100,)
)
DRIVER = DriverFacts(version="570.1", cuda=(12, 8), devices=("H100",))


def of(findings: list[MachineFinding], subject: str) -> MachineFinding:
    (found,) = (item for item in findings if item.subject == subject)
    return found


def test_a_good_machine_has_no_note() -> None:
    assert {item.level for item in judged(GOOD)} == {"ok"}
    assert {item.level for item in judged_devices(CUDA_TORCH, DRIVER)} == {"ok"}
    assert exit_code(judged(GOOD)) == 0


@pytest.mark.parametrize(
    ("facts", "subject", "level"),
    [
        (replace(GOOD, directory_error="nothing can be written to /data"), "disk", "PROBLEM"),
        (replace(GOOD, free_bytes=100 << 20), "disk", "PROBLEM"),
        (replace(GOOD, free_bytes=2 * GIB), "disk", "note"),
        (replace(GOOD, file_system="nfs4"), "disk", "note"),
        (replace(GOOD, fsync_seconds=0.2), "disk speed", "note"),
        (replace(GOOD, shared_memory_bytes=64 << 20), "shared memory", "note"),
        (replace(GOOD, open_files_max=256), "open files", "note"),
        (replace(GOOD, clock_synchronized=False), "clock", "note"),
        (replace(GOOD, port_taken=True), "port", "note"),
        (replace(GOOD, port_taken=True, port_kept=True), "port", "PROBLEM"),
        (replace(GOOD, memory_bytes=GIB), "processors", "note"),
    ],
)
def test_each_shortcoming_is_told_with_what_to_do(facts: MachineFacts, subject: str, level: str) -> None:
    finding = of(judged(facts), subject)
    assert finding.level == level
    assert finding.advice
    assert exit_code(judged(facts)) == (level == "PROBLEM")
    others = [item.level for item in judged(facts) if item.subject != subject]
    assert set(others) == {"ok"}


def test_a_port_that_the_cluster_itself_has_is_fine() -> None:
    assert of(judged(replace(GOOD, port_taken=True, own_cluster=True)), "port").level == "ok"


@pytest.mark.parametrize(
    ("torch", "driver", "subject"),
    [
        (TorchFacts(version="2.9+cpu"), DRIVER, "torch"),  # built for CPUs where there are GPUs
        (replace(CUDA_TORCH, cuda="13.0"), DRIVER, "torch"),  # newer than the driver serves
        (replace(CUDA_TORCH, cuda_available=False, devices=()), DRIVER, "torch"),
        (TorchFacts(error="ImportError: libcudnn.so.9"), DRIVER, "torch"),
        (CUDA_TORCH, DriverFacts(error="the driver does not answer: timeout"), "driver"),
        (replace(CUDA_TORCH, devices=(replace(H100, capability=(7, 0)),)), DRIVER, "GPU 0"),
        (
            replace(CUDA_TORCH, devices=(replace(H100, wrong="a multiplication gives another result than the CPU"),)),
            DRIVER,
            "GPU 0",
        ),
    ],
)
def test_what_keeps_gpus_from_training_is_a_problem(torch: TorchFacts, driver: DriverFacts, subject: str) -> None:
    finding = of(judged_devices(torch, driver), subject)
    assert finding.level == "PROBLEM"
    assert finding.advice


def test_a_driver_serves_later_minor_and_older_major_versions() -> None:
    for cuda in ("12.9", "12.0", "11.8"):
        assert of(judged_devices(replace(CUDA_TORCH, cuda=cuda), DRIVER), "torch").level == "ok"


def test_devices_of_another_maker_are_no_slots_and_not_judged() -> None:
    rocm = TorchFacts(version="2.9+rocm6", cuda_available=True, architectures=("gfx90a",), devices=(replace(H100, name="MI250"),))
    assert exit_code(judged_devices(rocm, DriverFacts())) == 0


def test_a_machine_without_torch_or_gpu_is_told_and_no_problem() -> None:
    findings = judged_devices(TorchFacts(missing=True), DriverFacts())
    assert of(findings, "torch").level == "note"
    assert "pip install" in of(findings, "torch").advice
    assert exit_code(findings) == 0


@given(
    st.tuples(st.integers(5, 12), st.integers(0, 9)),
    st.lists(st.sampled_from(["sm_80", "sm_90a", "sm_120", "compute_90", "compute_120", "gfx90a", "sm_", ""]), max_size=6),
)
def test_has_code_is_total_and_follows_the_rules_of_cuda(capability: tuple[int, int], names: list[str]) -> None:
    major, minor = capability
    expected = ("sm_80" in names and major == 8) or ("sm_90a" in names and major == 9) or ("sm_120" in names and major == 12)
    expected |= ("compute_90" in names and capability >= (9, 0)) or ("compute_120" in names and capability >= (12, 0))
    assert has_code((major, minor), tuple(names)) == expected


def test_the_first_slot_of_each_kind_is_chosen() -> None:
    slots = [Slot(slot_id=number, kind="cuda", device=device) for number, device in enumerate(["A", "A", "B", "A", "B"])]
    assert [slot.slot_id for slot in kinds(slots)] == [0, 2]


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_trial_is_killed_behind_a_checkpoint_and_between_two(kind: str, quick: bool) -> None:
    size = size_for(kind, quick)
    assert size.checkpoint_batches < size.killed_at < size.batches
    assert size.killed_at % size.checkpoint_batches


def test_other_weights_and_a_trial_that_nobody_killed_are_problems() -> None:
    size = size_for("cpu", quick=True)
    assert compared("one slot", size, 5.0, 5.0, runs=2).level == "ok"
    assert compared("one slot", size, 5.0, 6.0, runs=2).level == "PROBLEM"
    assert compared("one slot", size, 5.0, 5.0, runs=1).level == "PROBLEM"
