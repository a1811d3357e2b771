"""Names of providers and accounts, as operators give them."""

from __future__ import annotations

import pytest

from hivemind_trio.admin.change import Pausee, pauses_ended
from hivemind_trio.admin.provider import no_provider, of_accounts, pools_of, senders_of
from hivemind_trio.admin.views import ProviderDetailView, ProviderView
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


def account(name: str, circuit: str, probe_at: str | None, error: str | None = None) -> ProviderDetailView:
    view = ProviderView(
        name=name, inflight=1, limit=4, learned=False, waiting=0, circuit=circuit, probe_at=probe_at, limits=(),
        plans=(), estimate_error=error,
    )  # fmt: skip
    return ProviderDetailView(provider=view, concurrency=None, gates=(), circuit=(), models=())


LATE, EARLY = "2026-01-01T00:00:09.000Z", "2026-01-01T00:00:05.000Z"


@pytest.mark.parametrize(
    ("accounts", "circuit", "probe_at", "error"),
    [
        ([("open", LATE, None), ("open", EARLY, "404")], "open", EARLY, "404"),
        ([("open", EARLY, "404"), ("closed", None, None)], "closed", None, "404"),
        ([("closed", None, None), ("closed", None, None)], "closed", None, None),
    ],
)
def test_a_provider_is_tried_when_the_first_of_its_accounts_is(
    accounts: list[tuple[str, str | None, str | None]], circuit: str, probe_at: str | None, error: str | None
) -> None:
    whole = of_accounts("up", [account(f"up.{number}", *one) for number, one in enumerate(accounts)]).provider

    assert (whole.name, whole.circuit, whole.probe_at, whole.estimate_error) == ("up", circuit, probe_at, error)
