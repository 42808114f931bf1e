"""A result cached on a frozen value is no part of that value."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

from tenuto.kernel.memo import Memo
from tenuto.services.scheduler.state import Pool
from tenuto.services.searcher.methods.sampling import plan_of, sample
from tenuto.services.searcher.state.space import Space
from tests.support.search_world import SPACE, submitted


def test_one_thing_of_each_type_is_kept() -> None:
    memo = Memo()
    assert memo.get(dict) is None
    first = memo.keep({"a": 1})
    assert memo.get(dict) is first
    assert memo.get(list) is None
    assert memo.keep({"b": 2}) is memo.get(dict)
    assert memo.get(dict) == {"b": 2}


def test_copies_begin_empty() -> None:
    memo = Memo()
    memo.keep([1])
    for other in (copy.copy(memo), copy.deepcopy(memo), pickle.loads(pickle.dumps(memo))):
        assert other.get(list) is None


def test_a_changed_pool_shares_what_was_found_and_is_not_compared_by_it() -> None:
    pool = Pool("default")
    pool.memo.keep([1])
    assert replace(pool, free=2).memo is pool.memo
    assert Pool("default") == pool
    assert Pool("default").memo.get(list) is None, "two states share what was found"


def test_a_space_keeps_its_plan_and_draws_what_a_plain_one_draws() -> None:
    plain = submitted({"name": "single"}, space=SPACE).config.hyperparameters
    space = Space(plain)
    assert plan_of(space) is plan_of(space)
    assert space == plain
    assert [sample(space, 7, number) for number in range(1, 20)] == [sample(plain, 7, number) for number in range(1, 20)]
    again = copy.deepcopy(space)
    assert again == space
    assert plan_of(again) is not plan_of(space)
    assert sample(again, 7, 1) == sample(space, 7, 1)
