"""Providers that were never reached, or whose certificate is wrong: said within seconds, whatever the retry class."""

from __future__ import annotations

import socket
import ssl

import httpx2
import pytest
import trio

from tests.proxy.house import body_of, compiled, house
from tests.support.upstream import REFUSED, FakeProvider, Reply, Request

POLICY = 'provider p { api anthropic; base "http://first.example" }'
FALLBACK = """
provider p { api anthropic; base "http://first.example"; fallback second }
provider second { api anthropic; base "http://second.example" }
"""


def caused(error: Exception) -> httpx2.ConnectError:
    """The error as the stock transport raises it."""
    outer = httpx2.ConnectError("All connection attempts failed")
    outer.__cause__ = error
    return outer


def expired() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = 10, "certificate has expired"
    return error


CAUSES = {
    "refused": (ConnectionRefusedError(111, "refused"), "nothing listens there", 3),
    "no such name": (socket.gaierror(-2, "Name or service not known"), "its name cannot be resolved", 3),
    "certificate": (expired(), "certificate has expired", 1),
    "no TLS": (ssl.SSLError(1, "WRONG_VERSION_NUMBER"), "does not speak TLS", 3),
}


@pytest.mark.parametrize(("error", "words", "attempts"), CAUSES.values(), ids=CAUSES)
async def test_a_provider_that_was_never_reached_is_told_within_seconds(
    error: Exception, words: str, attempts: int, autojump_clock: object
) -> None:
    async with house(compiled(POLICY), FakeProvider(lambda _: Reply(before=(caused(error),)))) as opened:
        began_s = trio.current_time()
        agents = [await opened.ask() for _ in range(20)]
        took_s = (trio.current_time() - began_s) / 20

    assert {agent.status for agent in agents} == {503}
    assert all(words in agent.error["error"]["message"] for agent in agents)
    assert not any("first.example" in agent.answer.decode() for agent in agents)
    assert opened.records[0].attempts == attempts
    assert took_s < 2, "the circuit holds nobody back either"


async def test_a_connection_that_takes_long_to_fail_is_tried_once(autojump_clock: object) -> None:
    async with house(compiled(POLICY), FakeProvider(lambda _: Reply(before=(5.0, REFUSED)))) as opened:
        agent = await opened.ask()

    assert agent.status == 503
    assert opened.records[0].attempts == 1


async def test_a_provider_that_starts_beside_the_proxy_is_waited_for(autojump_clock: object) -> None:
    replies = [Reply(), Reply(before=(REFUSED,)), Reply(before=(REFUSED,))]
    async with house(compiled(POLICY), FakeProvider(lambda _: replies.pop())) as opened:
        agent = await opened.ask()

    assert agent.status == 200


async def test_a_provider_that_has_answered_once_is_retried_as_the_class_says(autojump_clock: object) -> None:
    replies = [*[Reply(before=(REFUSED,))] * 4, Reply(status=404)]
    policy = compiled(POLICY + "\nretry default { attempts 4 }")
    async with house(policy, FakeProvider(lambda _: replies.pop())) as opened:
        await opened.ask()
        await opened.ask()

    assert [record.attempts for record in opened.records] == [1, 4]


async def test_a_call_that_probes_an_open_circuit_does_not_use_up_its_attempts(autojump_clock: object) -> None:
    # Five in a row open it. What follows are probes, and the default class has eight attempts.
    replies = [Reply(), *[Reply(before=(REFUSED,))] * 12, Reply(status=404)]
    async with house(compiled(POLICY), FakeProvider(lambda _: replies.pop())) as opened:
        await opened.ask()
        agent = await opened.ask()

    assert agent.status == 200
    assert [record.attempts for record in opened.records] == [1, 13]


async def test_a_certificate_is_final_though_the_provider_has_answered_before(autojump_clock: object) -> None:
    replies = [Reply(before=(caused(expired()),)), Reply()]
    async with house(compiled(POLICY), FakeProvider(lambda _: replies.pop())) as opened:
        await opened.ask()
        agent = await opened.ask()

    assert [record.attempts for record in opened.records] == [1, 1]
    assert "certificate has expired" in agent.error["error"]["message"]


async def test_a_fallback_takes_the_calls_of_a_provider_that_was_never_reached(autojump_clock: object) -> None:
    def play(request: Request) -> Reply:
        return Reply(before=(caused(expired()),)) if request.url.host == "first.example" else Reply()

    async with house(compiled(FALLBACK), FakeProvider(play)) as opened:
        agents = [await opened.ask() for _ in range(20)]

    assert {agent.status for agent in agents} == {200}


async def test_a_stream_that_waits_for_nobody_is_told_before_it_is_begun(autojump_clock: object) -> None:
    provider = FakeProvider(lambda _: Reply(before=(REFUSED,)))
    async with house(compiled(POLICY.replace("}", "; concurrency 1 }")), provider) as opened:
        agents = [await opened.begin(body=body_of(stream=True)) for _ in range(5)]
        for agent in agents:
            await agent.done.wait()

    assert {agent.status for agent in agents} == {503}
