"""Copies of state: equal to what was, whatever happens to it afterwards, in memory that is used again."""

from __future__ import annotations

import gc
from collections import OrderedDict
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch import checkpoint, snapshots
from tenuto.workers.pytorch.snapshots import PIECE_BYTES, SMALL_BYTES_MAX, Buffers, Copier, Torn, copy_threads

LARGE = PIECE_BYTES // 4 + 1000  # of 4 bytes: more than one piece


def copied(value: Any, buffers: Buffers | None = None) -> Any:
    copier = Copier(buffers or Buffers())
    copy = copier(value)
    copier.finish()
    return copy


def kinds() -> dict[str, torch.Tensor]:
    side = int((SMALL_BYTES_MAX / 4) ** 0.5) + 50
    square = torch.randn(side, side)
    return {
        "one number": torch.tensor(3.5),
        "none": torch.empty(0, 7),
        "small": torch.randn(10),
        "large": torch.randn(LARGE),
        "whole numbers": torch.randint(-99, 99, (LARGE,)),
        "half": torch.randn(LARGE).to(torch.bfloat16),
        "truth": torch.rand(LARGE) > 0.5,
        "transposed": square.t(),
        "a part": square[3:, 5:],
        "every other": torch.randn(LARGE)[::2],
        "expanded": torch.randn(side, 1).expand(side, side),
        "channels last": torch.randn(8, 3, 64, 64).to(memory_format=torch.channels_last),
        "complex": torch.randn(LARGE, dtype=torch.complex64),
        "conjugated": torch.randn(LARGE, dtype=torch.complex64).conj(),
        "parameter": torch.nn.Parameter(torch.randn(LARGE)),
        "sparse": torch.eye(300).to_sparse(),
    }


@pytest.mark.parametrize("name", sorted(kinds()))
def test_a_copy_is_equal_and_stays_so_when_training_goes_on(name: str) -> None:
    value = kinds()[name]
    expected = value.detach().clone()
    buffers = Buffers()
    for _ in range(2):  # in fresh memory, then in memory that was used
        copier = Copier(buffers)
        copy = copier({"a": [value]})["a"][0]
        copier.finish()
        if name not in ("expanded", "sparse"):
            value.data.fill_(1)
        assert torch.equal(copy.to_dense() if copy.is_sparse else copy, expected.to_dense() if expected.is_sparse else expected)
        assert (copy.dtype, copy.shape) == (expected.dtype, expected.shape)
        assert (type(copy), copy.requires_grad) == (type(value), value.requires_grad), "as a file has it that is written at once"
        if name not in ("expanded", "sparse"):
            value.data.copy_(expected)
        copier.done()


def test_tensors_that_are_one_share_one_copy_and_views_do_not() -> None:
    weights = torch.randn(LARGE)
    copy = copied({"a": weights, "tied": weights, "view": weights[: LARGE // 2]})
    assert copy["a"] is copy["tied"]
    assert torch.equal(copy["view"], weights[: LARGE // 2])
    assert copy["view"].data_ptr() != copy["a"].data_ptr()


def test_what_is_made_for_a_state_dict_alone_is_copied_before_it_goes() -> None:
    copier = Copier(Buffers())
    copies = [copier([torch.full((LARGE,), float(number))]) for number in range(8)]
    gc.collect()
    _ = [torch.full((LARGE,), -1.0) for _ in range(8)]  # what would take the memory that was let go
    copier.finish()
    assert [float(copy[0].min()) for copy in copies] == [float(copy[0].max()) for copy in copies] == list(range(8))


def test_memory_is_made_ahead_and_used_again_and_not_more_of_it() -> None:
    buffers = Buffers()
    state = {"model": {"w": torch.randn(LARGE), "tied": torch.randn(5)}, "optimizer": [torch.randn(LARGE), 3, "x"]}
    state["model"]["again"] = state["model"]["w"]
    buffers.prepare(state)
    pointers = []
    for _ in range(3):
        copier = Copier(buffers)
        copy = copier(state)
        assert not any(copier._memory.values()), "nothing is left over: one copy of the state is all the memory there is"
        copier.finish()
        pointers.append({copy["model"]["w"].data_ptr(), copy["optimizer"][0].data_ptr(), copy["model"]["tied"].data_ptr()})
        copier.done()
    assert pointers[0] == pointers[1] == pointers[2]


def test_memory_of_tensors_that_are_gone_is_let_go() -> None:
    buffers = Buffers()
    buffers.prepare([torch.randn(LARGE), torch.randn(LARGE)])
    copier = Copier(buffers)
    copier([torch.randn(LARGE)])
    copier.finish()
    copier.done()
    assert buffers._free is not None
    assert sum(len(free) for free in buffers._free.values()) == 1


def test_two_copies_at_once_have_memory_of_their_own_and_one_remains() -> None:
    buffers, weights = Buffers(), torch.zeros(LARGE)
    copiers, copies = [], []
    for number in (1.0, 2.0):
        weights.fill_(number)
        copiers.append(Copier(buffers))
        copies.append(copiers[-1]([weights])[0])
        copiers[-1].finish()
    assert [float(copy.min()) for copy in copies] == [1.0, 2.0]
    for copier in copiers:
        copier.done()
    assert buffers._free is not None
    assert sum(len(free) for free in buffers._free.values()) == 1


def test_what_lives_only_while_it_is_copied_is_not_taken_for_the_next_one() -> None:
    buffers = Buffers()
    for _ in range(3):  # the memory of a copy that is used again makes room for no new tensor at the address of one that went
        copier = Copier(buffers)
        copies = [copier({"a": torch.full((1000,), float(number)), "b": [number]}) for number in range(6)]
        copier.finish()
        assert [(float(copy["a"].min()), copy["b"]) for copy in copies] == [(number, [number]) for number in range(6)]
        copier.done()


@pytest.mark.parametrize("size", [8, LARGE])
def test_what_is_one_remains_one_in_the_copy(size: int) -> None:
    memory, words = torch.randn(size), ["a"]
    value = {
        "memory": memory, "head": memory[: size // 2], "rest": memory[size // 2 :], "other": torch.randn(size),
        "turned": memory[:8].reshape(2, 4).t(), "words": words, "same": (words, OrderedDict(words=words)),
    }  # fmt: skip
    copier = Copier(Buffers())
    copier.look(value)
    copy = copier(value)
    copier.finish()
    before = {name: item.clone() for name, item in value.items() if isinstance(item, torch.Tensor)}
    memory.zero_()
    assert all(torch.equal(copy[name], item) for name, item in before.items())
    copy["memory"].fill_(7.0)
    assert {float(copy[name].min()) for name in ("head", "rest", "turned")} == {7.0}
    assert copy["words"] is copy["same"][0] is copy["same"][1]["words"]
    assert copy["words"] is not words


def test_parts_of_one_memory_that_have_nothing_in_common_are_copied_alone() -> None:
    memory = torch.randn(3 * LARGE)
    copier = Copier(Buffers())
    copier.look(value := [memory[:LARGE], memory[LARGE : LARGE + 5]])
    assert [copy.untyped_storage().nbytes() for copy in copier(value)] == [LARGE * 4, 20]
    copier.finish()


def trained(optimizer: torch.optim.Optimizer, weights: torch.Tensor) -> None:
    weights.grad = torch.ones_like(weights)
    optimizer.step()


def test_a_step_waits_until_its_state_is_copied_and_then_no_more() -> None:
    weights = torch.nn.Parameter(torch.zeros(LARGE))
    optimizer = torch.optim.Adam([weights])
    trained(optimizer, weights)
    expected = {name: value.clone() for name, value in optimizer.state[weights].items()}
    buffers = Buffers()
    copier = Copier(buffers)
    copies = copier.later(optimizer.state_dict())
    held, let_go = Event(), Event()
    for _ in range(copy_threads()):  # all of them, so that nothing is copied yet
        buffers.threads.submit(lambda: (held.set(), let_go.wait(60)))
    held.wait(60)
    copier.finish()
    stepping = Thread(target=trained, args=(optimizer, weights))
    stepping.start()
    assert not any(future.done() for future in copier._under_way)
    assert torch.equal(optimizer.state[weights]["exp_avg"], expected["exp_avg"])
    let_go.set()
    stepping.join()
    copier.wait()
    assert not torch.equal(optimizer.state[weights]["exp_avg"], expected["exp_avg"]), "it has stepped"
    assert {name: value.tolist() for name, value in copies["state"][0].items()} == {
        name: value.tolist() for name, value in expected.items()
    }
    assert snapshots._copying == []
    copier.done()


def test_several_copies_between_two_steps_break_no_step() -> None:
    weights = torch.nn.Parameter(torch.zeros(LARGE))
    optimizer = torch.optim.Adam([weights])
    trained(optimizer, weights)
    copiers = [Copier(Buffers()) for _ in range(3)]
    hook = register_optimizer_step_pre_hook(lambda *_: None)
    try:
        copies = []
        for copier in copiers:
            copies.append(copier.later(optimizer.state_dict()))
            copier.finish()
        expected = optimizer.state[weights]["exp_avg"].clone()
        trained(optimizer, weights)
        trained(optimizer, weights)
    finally:
        hook.remove()
    for copier, copy in zip(copiers, copies, strict=True):
        copier.wait()
        assert torch.equal(copy["state"][0]["exp_avg"], expected)


def test_a_conjugate_is_not_taken_for_the_tensor_whose_memory_it_has() -> None:
    value = torch.randn(LARGE, dtype=torch.complex64)
    copy = copied({"a": value, "b": value.conj()})
    assert torch.equal(copy["a"], value)
    assert torch.equal(copy["b"], value.conj())


def test_a_parameter_and_its_values_share_the_copy_and_differ_in_kind() -> None:
    weights = torch.nn.Parameter(torch.randn(LARGE))
    copy = copied({"one": weights, "again": weights, "values": weights.detach()})
    assert copy["one"] is copy["again"]
    assert isinstance(copy["one"], torch.nn.Parameter)
    assert not copy["values"].requires_grad
    assert copy["values"].data_ptr() == copy["one"].data_ptr()


@pytest.mark.parametrize("room", [True, False])
def test_memory_is_made_ahead_only_where_there_is_room(room: bool) -> None:
    model = torch.nn.Linear(3, 3)
    parts: Any = SimpleNamespace(context=SimpleNamespace(_models=[model], _optimizers=[torch.optim.SGD(model.parameters())]))
    buffers = Buffers()
    checkpoint.prepare(parts, buffers, has_room=lambda needed: room and needed == 48)
    assert buffers.has_free is room


def test_state_that_changed_behind_the_step_is_not_saved() -> None:
    weights = torch.nn.Parameter(torch.zeros(LARGE))
    optimizer = torch.optim.Adam([weights])
    trained(optimizer, weights)
    copier = Copier(Buffers())
    copier.later(optimizer.state_dict())
    optimizer.state[weights]["exp_avg"].zero_()
    copier.finish()
    with pytest.raises(Torn, match="an optimizer's state was changed between two of its steps"):
        copier.wait()
    trained(optimizer, weights)  # and lets go of the hook


def test_what_cannot_be_copied_is_said() -> None:
    with pytest.raises(UserError, match="keep only picklable values"):
        copied({"a": (number for number in range(3))})
