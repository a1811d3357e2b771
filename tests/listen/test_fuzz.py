"""The fuzz target, run small so that it does not rot: its seeds, and what Hypothesis makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.door_http import SEEDS, one_input


@pytest.mark.parametrize("seed", SEEDS, ids=range(len(SEEDS)))
def test_a_seed_holds(seed: bytes) -> None:
    one_input(seed)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.sampled_from(SEEDS), edits=st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=6)), max_size=4))
def test_a_seed_with_a_few_edits_holds(seed: bytes, edits: list[tuple[int, bytes]]) -> None:
    for at, put in edits:
        at %= len(seed)
        seed = seed[:at] + put + seed[at + len(put) :]
    one_input(seed)
