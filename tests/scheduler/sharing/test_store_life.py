"""A store that knows nothing learns until all have told it, or until there was time enough in which it was there."""

from __future__ import annotations

import pytest

from hivemind_trio.scheduler.sharing.store_life import StoreLife


def learns_until(life: StoreLife, times_ms: list[int], known: int = 1) -> int:
    """Have one of two nodes speak at these times; return when the store last learned."""
    last_ms = -1
    for now_ms in times_ms:
        life.turns("1", now_ms)
        if life.learns(known, 2, now_ms):
            last_ms = now_ms
    return last_ms


def test_a_store_learns_until_all_have_told_it_or_for_a_time() -> None:
    assert learns_until(StoreLife(1_000), list(range(0, 3_000, 100))) == 900
    assert learns_until(StoreLife(1_000), list(range(0, 3_000, 100)), known=2) == -1


@pytest.mark.parametrize(("longest_ms", "until_ms"), [(0, -1), (9_000, 3_900), (3_500, 3_400)])
def test_time_in_which_nobody_reaches_a_store_is_no_time_to_learn(longest_ms: int, until_ms: int) -> None:
    life = StoreLife(1_000, longest_ms)
    assert learns_until(life, [0, 100]) == 100
    assert learns_until(life, list(range(3_000, 6_000, 100))) == (until_ms if longest_ms else -1)


def test_another_life_has_another_name_also_in_the_same_process() -> None:
    life, emptied = StoreLife(1_000), StoreLife(1_000)
    assert [life.turns("1", 5), life.turns("1", 6), life.turns("2", 7)] == [True, False, True]
    assert emptied.turns("2", 9)
    assert {life.name, emptied.name} == {"2/7", "2/9"}
