"""The heap against a sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.scheduler.structures.indexed_heap import SWEEP_MIN, IndexedHeap

operations = st.lists(
    st.tuples(st.sampled_from(["put", "discard", "take"]), st.integers(0, 30), st.integers(0, 5)), max_size=200
)


@given(operations)
def test_the_first_is_the_lowest_rank_and_among_equals_the_one_that_came_first(
    operations: list[tuple[str, int, int]],
) -> None:
    heap: IndexedHeap[int] = IndexedHeap()
    model: dict[int, tuple[int, int]] = {}  # item -> (rank, when it came there)

    for step, (what, item, rank) in enumerate(operations):
        if what == "put":
            heap.put(item, (rank,))
            if item not in model or model[item][0] != rank:
                model[item] = (rank, step)
        elif what == "discard":
            heap.discard(item)
            model.pop(item, None)
        else:
            first = heap.first
            assert first == min(model, key=lambda each: model[each], default=None)
            if first is not None:
                heap.discard(first)
                del model[first]

        assert len(heap) == len(model)
        assert heap.first == min(model, key=lambda each: model[each], default=None)


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=400))
def test_what_is_dead_never_outnumbers_what_lives(operations: list[tuple[bool, int]]) -> None:
    heap: IndexedHeap[int] = IndexedHeap()
    heap.put(-1, (-1,))  # stays on top, so that nothing dead is ever popped

    for put, item in operations:
        if put:
            heap.put(item, (item,))
        else:
            heap.discard(item)

        assert heap.dead <= max(SWEEP_MIN, len(heap))
