"""The persistent ranking against a plain sorted list."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from tenuto.services.searcher.state.ranking import CHUNK_KEYS_MAX, Ranking, Rung

KEYS = st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), st.integers(1, 50))


@given(st.lists(st.tuples(st.booleans(), KEYS), max_size=200), KEYS)
def test_it_is_a_sorted_set(steps: list[tuple[bool, tuple[float, int]]], probe: tuple[float, int]) -> None:
    ranking, model = Ranking(), set()
    for add, key in steps:
        before, kept = ranking, list(ranking)
        ranking = ranking.add(key) if add else ranking.remove(key)
        (model.add if add else model.discard)(key)
        assert list(before) == kept, "changed in place"
    expected = sorted(model)
    assert list(ranking) == expected
    assert len(ranking) == len(expected)
    assert [ranking[i] for i in range(len(expected))] == expected
    assert ranking == Ranking.of(expected)
    assert ranking.rank(probe) == bisect_left(expected, probe)
    assert (probe in ranking) == (probe in model)


def test_many_keys_split_into_chunks() -> None:
    count = CHUNK_KEYS_MAX * 5
    keys = [((number * 7919) % count / 1.0, number) for number in range(count)]
    ranking = Ranking()
    for key in keys:
        ranking = ranking.add(key)
    ordered = sorted(keys)
    assert list(ranking) == ordered
    assert len(ranking.chunks) > 4
    assert all(len(chunk) <= CHUNK_KEYS_MAX for chunk in ranking.chunks)
    assert all(ranking.rank(key) == rank for rank, key in enumerate(ordered))
    assert ranking == Ranking.of(ordered)
    assert ranking[-1] == ordered[-1]
    for key in keys:
        ranking = ranking.remove(key)
    assert ranking == Ranking()
    assert ranking.chunks == ()


def test_a_rung_keeps_the_best_only() -> None:
    rung = Rung(best_max=2)
    for key in [(3.0, 1), (1.0, 2), None, (2.0, 3), (0.5, 4)]:
        rung = rung.arrive(key)
    assert rung.size == 5
    assert list(rung.best) == [(0.5, 4), (1.0, 2)]
