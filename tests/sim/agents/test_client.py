"""Clients: which errors they try again, how often, and when."""

from __future__ import annotations

from random import Random

import pytest

from hivemind_trio.proxy.request.client_profile import ClientProfile as Door
from hivemind_trio.sim import CLIENTS, ClientReply
from tests.sim.worlds import MS, SECOND


def pauses(client: str, reply: ClientReply, *, times: int = 20) -> list[int]:
    """How long it pauses each time until it gives up, in ms."""
    chance, found = Random(1), list[int]()
    for retried in range(times):
        broken = retried if reply.broken else 0
        pause_ns = CLIENTS[client].pause_ns(reply, retried, broken, chance)
        if pause_ns is None:
            return found
        found.append(pause_ns // MS)
    return found


LIMITED = ClientReply(status=429)
OVERLOADED = ClientReply(status=529)
GONE = ClientReply(status=0)
TIRED = ClientReply(status=0, timed_out=True)
BROKEN = ClientReply(status=200, broken=True)


@pytest.mark.parametrize(
    ("client", "reply", "times"),
    [
        *(("none", reply, 0) for reply in (LIMITED, OVERLOADED, GONE, BROKEN)),
        *(("anthropic-sdk", reply, 2) for reply in (LIMITED, OVERLOADED, GONE, ClientReply(status=409), TIRED)),
        *(("anthropic-sdk", ClientReply(status=status), 0) for status in (400, 401, 403, 404, 413)),
        ("anthropic-sdk", BROKEN, 0),
        ("anthropic-sdk", ClientReply(status=429, final=True), 0),
        ("openai-sdk", LIMITED, 2),
        ("openai-sdk", ClientReply(status=429, retry_after_ns=120 * SECOND), 2),
        ("openai-sdk", ClientReply(status=429, retry_after_ns=121 * SECOND), 0),
        ("claude-code", LIMITED, 10),
        ("claude-code", BROKEN, 1),
        ("codex", LIMITED, 0),
        ("codex", OVERLOADED, 4),
        ("codex", BROKEN, 5),
    ],
    ids=str,
)  # fmt: skip
def test_how_often_a_client_asks_again(client: str, reply: ClientReply, times: int) -> None:
    assert len(pauses(client, reply)) == times


def test_an_sdk_s_pauses_double_and_are_shortened_by_up_to_a_quarter() -> None:
    for place, pause in enumerate(pauses("claude-code", GONE)):
        longest = min(500 * 2**place, 32_000)
        assert 0.75 * longest <= pause + 1 <= longest + 1


@pytest.mark.parametrize(
    ("client", "said_s", "kept"),
    [("anthropic-sdk", 60, True), ("anthropic-sdk", 61, False), ("openai-sdk", 61, True), ("codex", 5, False)],
)
def test_a_retry_after_is_kept_to_as_far_as_the_client_does(client: str, said_s: int, kept: bool) -> None:
    reply = ClientReply(status=503, retry_after_ns=said_s * SECOND)

    assert (pauses(client, reply)[0] == said_s * 1_000) is kept


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        ("none", {}),
        ("anthropic-sdk", {"user-agent": "Anthropic/Python 1.2.0", "x-stainless-read-timeout": "600"}),
        ("openai-sdk", {"user-agent": "OpenAI/Python 3.3.1", "x-stainless-read-timeout": "600"}),
        ("claude-code", {"user-agent": "claude-cli/2.1.190 (external, cli)"}),
        ("codex", {"user-agent": "codex_cli_rs/0.60.1"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_door_takes_each_for_what_it_is_here(client: str, headers: dict[str, str]) -> None:
    known, simulated = Door.of(headers), CLIENTS[client]

    assert known.waits_s == (None if simulated.known_ns is None else simulated.known_ns / SECOND)
    assert known.tries_left == simulated.known_tries
    assert known.dies_of_429 is simulated.limits_are_fatal
