"""What `serve` alone makes of a machine."""

from __future__ import annotations

import pytest
import trio

from hivemind_trio.demo import ScriptedReply, SimulatedProvider
from hivemind_trio.model import Api
from hivemind_trio.policy import MemoryFiles, check, format_text
from hivemind_trio.serve.autodetect import KEYS, OLLAMA_BASE, Found, from_environment, ollama, ollama_base, policy_text
from hivemind_trio.upstream import PoolTransport, Upstream
from tests.support.relay import Peer, raw_server

EVERYTHING = [
    *(Found(provider, f"{names[0]} is set", (f"key env({names[0]})",)) for provider, names in KEYS),
    Found("ollama", "it answers", (f'base "{OLLAMA_BASE}"', "concurrency 2")),
]


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, []),
        ({"ANTHROPIC_API_KEY": ""}, []),
        ({"PATH": "/bin", "ANTHROPIC_API_KEY_OLD": "k"}, []),
        ({"ANTHROPIC_API_KEY": "k"}, [("anthropic", "key env(ANTHROPIC_API_KEY)")]),
        ({"ANTHROPIC_AUTH_TOKEN": "k"}, [("anthropic", "key env(ANTHROPIC_AUTH_TOKEN)")]),
        ({"ANTHROPIC_AUTH_TOKEN": "k", "ANTHROPIC_API_KEY": "k"}, [("anthropic", "key env(ANTHROPIC_API_KEY)")]),
        (
            {"GOOGLE_API_KEY": "k", "OPENAI_API_KEY": "k"},
            [("openai", "key env(OPENAI_API_KEY)"), ("gemini", "key env(GOOGLE_API_KEY)")],
        ),
    ],
)
def test_a_provider_is_found_by_the_variables_of_its_sdk(environ: dict[str, str], found: list[tuple[str, str]]) -> None:
    assert [(one.provider, *one.body) for one in from_environment(environ)] == found


def test_no_value_of_a_key_gets_into_what_is_found() -> None:
    found = from_environment({"ANTHROPIC_API_KEY": "the-secret", "OPENAI_API_KEY": "the-secret"})

    assert "the-secret" not in repr(found) + policy_text(found)


@pytest.mark.parametrize("count", range(1, len(EVERYTHING) + 1))
def test_the_policy_compiles_without_a_finding_and_is_laid_out_as_fmt_would(count: int) -> None:
    for found in (EVERYTHING[:count], EVERYTHING[-count:]):
        text = policy_text(found)

        checked = check("built-in.hmp", MemoryFiles({"built-in.hmp": text}))

        assert not checked.diagnostics
        assert checked.program is not None
        assert list(checked.program.providers) == [one.provider for one in found]
        assert format_text(text) == text


def test_the_policy_knows_what_each_provider_speaks() -> None:
    checked = check("built-in.hmp", MemoryFiles({"built-in.hmp": policy_text(EVERYTHING)}))

    assert checked.program is not None
    apis = [one.api for one in checked.program.providers.values()]
    assert apis == [Api.ANTHROPIC, Api.OPENAI, Api.GEMINI, Api.MISTRAL, Api.OLLAMA]


@pytest.mark.parametrize(
    ("host", "base"),
    [
        ("", "http://127.0.0.1:11434"),
        ("  ", "http://127.0.0.1:11434"),
        ("gpu", "http://gpu:11434"),
        ("gpu:8080", "http://gpu:8080"),
        (":8080", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("http://gpu", "http://gpu:11434"),
        ("https://gpu:443/", "https://gpu:443"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(host: str, base: str) -> None:
    assert ollama_base(host) == base


async def test_an_ollama_is_found_if_it_answers(nursery: trio.Nursery) -> None:
    server = SimulatedProvider()
    await nursery.start(server.run)
    upstream = Upstream(PoolTransport())

    server.default = ScriptedReply(status=200, body=b'{"version":"0.9.0"}')
    found = await ollama(upstream, {"OLLAMA_HOST": server.url})
    server.default = ScriptedReply(status=404)
    not_one = await ollama(upstream, {"OLLAMA_HOST": server.url})

    assert found == Found("ollama", f"it answers at {server.url}", (f'base "{server.url}"', "concurrency 2"))
    assert not_one is None
    assert {seen.target for seen in server.seen} == {b"/api/version"}
    await upstream.aclose()
    nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_what_is_not_there_or_does_not_answer_is_not_found() -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await trio.sleep_forever()

    async def garbled(peer: Peer) -> None:
        await peer.request()
        await peer.stream.send_all(b"SSH-2.0-OpenSSH_9.6\r\n")

    upstream = Upstream(PoolTransport())
    closed = await ollama(upstream, {"OLLAMA_HOST": "127.0.0.1:1"})
    with trio.fail_after(10):
        async with raw_server(silent) as deaf, raw_server(garbled) as ssh:
            nothing = await ollama(upstream, {"OLLAMA_HOST": deaf.base})
            another = await ollama(upstream, {"OLLAMA_HOST": ssh.base})
    await upstream.aclose()

    assert [closed, nothing, another] == [None, None, None]
