"""Names of providers and accounts, as operators give them."""

from __future__ import annotations

import pytest

from hivemind_trio.admin.change import Pausee, pauses_ended
from hivemind_trio.admin.provider import no_provider, pools_of, senders_of
from hivemind_trio.scheduler import Pausable
from tests.support.policies import compiled

PROGRAM = compiled("""
provider up {
  api anthropic
  account a { key env(A) }
  account b { key env(B) }
  account c { key env(C); shares a }
}
provider upper { api openai; key env(U) }
""")


@pytest.mark.parametrize(
    ("name", "pools", "senders"),
    [
        ("up", "up.a up.b", "up up.a up.b up.c"),
        ("up.a", "up.a", "up.a up.c"),
        ("up.c", "up.a", "up.c"),
        ("upper", "upper", "upper"),
        ("a", "", "a"),
    ],
)
def test_a_name_stands_for_accounts(name: str, pools: str, senders: str) -> None:
    assert " ".join(pools_of(PROGRAM, name)) == pools
    assert senders_of(PROGRAM, name) == set(senders.split())


def test_a_slip_is_answered_with_every_name() -> None:
    assert str(no_provider(PROGRAM, "op")).endswith("it has up (accounts up.a, up.b, up.c), upper")


def test_resume_ends_the_pauses_of_a_providers_accounts_too() -> None:
    paused = [(Pausable.PROVIDER, name) for name in ("up", "up.a", "upper")] + [(Pausable.LANE, "up.x")]

    assert pauses_ended(Pausee(kind=Pausable.PROVIDER, name="up"), paused) == paused[:2]
    assert pauses_ended(Pausee(kind=Pausable.PROVIDER, name="up.a"), paused) == paused[1:2]
    assert pauses_ended(Pausee(kind=Pausable.LANE, name="up"), paused) == []
