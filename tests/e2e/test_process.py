"""The command as an operator meets it: its lines, its signals, its exit status."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anthropic
import httpx2
import openai
import pytest
import trio

from hivemind_trio.demo import ScriptedReply, SimulatedProvider
from hivemind_trio.policy import MemoryFiles, check
from tests.e2e.house import in_thread, messages
from tests.e2e.process import PATIENCE_S, environment, run, serving
from tests.support.forked import as_ever
from tests.support.ports import kept_port

# openai-python leaves its async generators half read at the end of every stream.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning")


@pytest.fixture
def policy(tmp_path: Path, provider: SimulatedProvider) -> Path:
    path = tmp_path / "team.hmp"
    path.write_text(text(provider))
    return path


def text(provider: SimulatedProvider, concurrency: int = 3, rest: str = "") -> str:
    return f'hmp 1\nprovider sim {{ api generic; base "{provider.url}"; concurrency {concurrency} }}\n{rest}'


def keyed(provider: SimulatedProvider, rest: str = "") -> str:
    return text(provider, rest=rest).replace("concurrency", "key env(KEY); concurrency")


def save(path: Path, content: str) -> None:
    """Replace a file as editors do, in one step: a file that is half written is a bad edit of its own."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(content)
    new.replace(path)


HANGS_UP: Final = """
import os, signal, sys
from hivemind_trio.__main__ import main

where, policy = sys.argv.pop(1), sys.argv[sys.argv.index("--policy") + 1]
opened = 0

def hang_up(event, arguments):
    global opened
    if where == "imports" and event == "import" and arguments[0].startswith("hivemind_trio."):
        os.kill(os.getpid(), signal.SIGHUP)
    if where == "policy" and event == "open" and arguments[0] == policy and not opened:
        opened = 3
        for _ in range(opened):
            os.kill(os.getpid(), signal.SIGHUP)

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGHUP):
        kill(pid, number)

if where == "end":
    last = Last()  # deleted with its module, when Python has taken its handlers of signals back
else:
    sys.addaudithook(hang_up)
main()
"""
"""Runs the command, which gets a SIGHUP at each import, three as it opens its policy for the first time, or at its end.
"""


def client_of(url: str, key: str = "k") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


async def policy_hash(url: str, key: str = "k") -> str:
    """Which policy answers, as the answer itself says."""
    async with client_of(url, key) as client:
        raw = await client.chat.completions.with_raw_response.create(model="gpt-x", messages=messages())
    return str(raw.headers["x-hivemind-policy"])


async def refused(url: str) -> bool:
    """Whether a new connection is."""
    address = urlsplit(url)
    try:
        stream = await trio.open_tcp_stream(str(address.hostname), address.port or 0)
    except OSError:
        return True
    await stream.aclose()
    return False


# ---- serving and reloading ----


@pytest.mark.parametrize("start", [as_ever, nullcontext])
async def test_a_policy_file_runs_a_proxy(policy: Path, start: Callable[[], AbstractContextManager[None]]) -> None:
    def ask(url: str) -> str:
        with anthropic.Anthropic(base_url=url, api_key="a-secret-key", max_retries=0) as client:
            answer = client.messages.create(model="claude-x", max_tokens=50, messages=messages())
        assert answer.content[0].type == "text"
        return answer.content[0].text

    with start():
        async with serving("--policy", policy, "--log-calls") as proxy:
            answer = await in_thread(lambda: ask(proxy.url))
            call = await proxy.says("call_ended")
            proxy.signal(signal.SIGINT)
            status = await proxy.ended()
            lines = "\n".join(proxy.lines)

    assert answer
    assert (call["provider"], call["model"], call["status"], call["level"]) == ("sim", "claude-x", 200, "info")
    assert "a-secret-key" not in lines
    assert status == 0


async def test_editing_the_file_reloads_it_and_so_does_sighup(policy: Path, provider: SimulatedProvider) -> None:
    async with serving("--policy", policy) as proxy:
        hashes = [proxy.of("serving")[0]["hash"]]
        save(policy, text(provider, concurrency=4))
        hashes.append((await proxy.says("policy_loaded"))["hash"])
        assert await policy_hash(proxy.url) == hashes[1]

        proxy.signal(signal.SIGHUP)
        again = await proxy.says("policy_loaded", times=2)

    assert len(set(hashes)) == 2
    assert again["hash"] == hashes[1]
    assert proxy.of("reload_requested")


async def test_what_a_reload_changes_is_said_as_diff_says_it(policy: Path, provider: SimulatedProvider) -> None:
    async with serving("--policy", policy) as proxy:
        save(policy, text(provider, concurrency=1, rest="rule all { priority 7 }\nbudget b { requests 5/hour }\n"))
        await proxy.says("decision_changed")
        save(policy, text(provider, concurrency=1, rest="rule all { priority 7 }\nbudget b { requests 5/day }\n"))
        reset = await proxy.says("state_reset")

    changes = {one["change"]: one for one in proxy.of("setting_changed")}
    (calls,) = proxy.of("decision_changed")
    assert [changes["lowered"][name] for name in ("declaration", "setting", "after", "state")] == [
        "provider sim",
        "concurrency",
        "1",
        "drains",
    ]
    assert changes["added"]["declaration"] == "budget b"
    assert (calls["priority"], calls["budgets"]) == ("0 -> 7", "+b")
    assert (reset["code"], reset["level"], reset["before"]) == ("HM701", "warning", "5/hour requests")


async def test_the_log_is_in_the_policy_s_form_and_changes_with_it(policy: Path, provider: SimulatedProvider) -> None:
    save(policy, text(provider, rest="server { log json }\n"))
    async with serving("--policy", policy, log=None) as proxy:
        assert len(proxy.events) == len(proxy.lines)

        save(policy, text(provider, rest="server { log text }\n"))
        await proxy.until(lambda: any("policy_loaded" in line for line in proxy.lines))

    assert not proxy.of("policy_loaded")


async def test_the_command_line_decides_on_the_log_s_form(policy: Path, provider: SimulatedProvider) -> None:
    save(policy, text(provider, rest="server { log text }\n"))
    async with serving("--policy", policy) as proxy:
        save(policy, text(provider, concurrency=4, rest="server { log text }\n"))
        await proxy.says("policy_loaded")

    assert len(proxy.events) == len(proxy.lines)


async def test_a_bad_edit_keeps_the_policy_and_is_reported_once_and_the_next_good_one_loads(
    policy: Path, provider: SimulatedProvider
) -> None:
    async with serving("--policy", policy) as proxy:
        running = proxy.of("serving")[0]["hash"]
        save(policy, text(provider, rest="lane fast { wieght 3 }\n"))
        kept = await proxy.says("policy_rejected")
        assert await policy_hash(proxy.url) == running

        save(policy, text(provider, rest="lane fast { wieght 3 }\n"))  # saved again, as it was
        save(policy.parent / "notes.txt", "nothing of ours")
        save(policy, text(provider, rest="lane fast { weight 3 }\n"))
        loaded = await proxy.says("policy_loaded")
        assert await policy_hash(proxy.url) == loaded["hash"] != running

    assert len(proxy.of("policy_rejected")) == 1
    assert any("team.hmp:3:13: error[HM102]" in one and "`weight`" in one for one in kept["diagnostics"])


async def test_for_people_the_bad_edit_is_shown_with_its_place(policy: Path, provider: SimulatedProvider) -> None:
    async with serving("--policy", policy, log="text") as proxy:
        save(policy, text(provider, rest="lane fast { wieght 3 }\n"))
        await proxy.until(lambda: any("1 error" in line for line in proxy.lines))

    shown = "\n".join(proxy.lines)
    assert "policy_rejected" in shown
    assert "lane fast { wieght 3 }\n  |             ^^^^^^" in shown


@pytest.mark.parametrize("where", ["imports", "policy"])
@pytest.mark.parametrize("workers", [1, 2])
async def test_a_sighup_while_it_starts_is_at_most_one_reload(where: str, workers: int, policy: Path) -> None:
    started = [sys.executable, "-c", HANGS_UP, where, "serve"]
    async with serving("--policy", policy, "--workers", str(workers), serve=started) as proxy:
        if where == "policy":
            await proxy.says("reload_requested")
        proxy.signal(signal.SIGHUP)
        await proxy.says("policy_loaded")
        proxy.signal(signal.SIGTERM)
        status = await proxy.ended()

    assert status == 0, proxy.lines
    if where == "policy":
        assert len(proxy.of("reload_requested")) == 2


async def test_a_sighup_at_its_end_does_not_change_the_exit_status(policy: Path) -> None:
    save(policy, "nonsense")
    with trio.fail_after(PATIENCE_S):
        ended = await trio.run_process(
            [sys.executable, "-c", HANGS_UP, "end", "serve", "--policy", str(policy)],
            check=False,
            capture_stderr=True,
            env=environment(),
        )

    assert ended.returncode == 1, ended.stderr


async def test_the_old_policy_is_back_after_a_bad_one_was_undone(policy: Path, provider: SimulatedProvider) -> None:
    async with serving("--policy", policy) as proxy:
        save(policy, "nonsense")
        await proxy.says("policy_rejected")
        save(policy.parent / "team.hmp~", text(provider))
        os.replace(policy.parent / "team.hmp~", policy)  # as many editors save
        loaded = await proxy.says("policy_loaded")

    assert loaded["hash"] == proxy.of("serving")[0]["hash"]


async def test_a_log_that_nobody_reads_any_more_does_not_end_it(policy: Path, provider: SimulatedProvider) -> None:
    async with serving("--policy", policy, "--log-calls") as proxy:
        url, running = proxy.url, proxy.of("serving")[0]["hash"]
        await proxy.close()
        assert await policy_hash(url) == running

        save(policy, text(provider, concurrency=4))
        with trio.fail_after(PATIENCE_S):
            while await policy_hash(url) == running:
                pass  # a reload takes a fraction of a second, and there is no line that would tell of it
        save(policy, "nonsense")
        proxy.signal(signal.SIGHUP)
        assert await policy_hash(url) != running
        proxy.signal(signal.SIGTERM)
        status = await proxy.ended()

    assert status == 0


async def test_a_rotated_key_in_a_file_is_used_though_no_policy_changed(
    tmp_path: Path, provider: SimulatedProvider
) -> None:
    key, policy = tmp_path / "keys" / "sim", tmp_path / "team.hmp"
    key.parent.mkdir()
    key.write_text("old\n")
    key.chmod(0o600)
    save(policy, text(provider).replace("concurrency 3", f'key file("{key}")'))

    async with serving("--policy", policy) as proxy:
        await policy_hash(proxy.url)
        key.write_text("new\n")
        await proxy.says("policy_loaded")
        await policy_hash(proxy.url)

    sent = [dict(seen.headers)[b"authorization"] for seen in provider.seen]
    assert sent == [b"Bearer old", b"Bearer new"]
    assert not any("old" in line or "new" in line for line in proxy.lines)


async def test_another_listen_address_needs_a_restart_and_nothing_of_that_file_is_taken(
    policy: Path, provider: SimulatedProvider
) -> None:
    with kept_port() as port:
        address = f"127.0.0.1:{port}"
        save(policy, text(provider, rest=f'server {{ listen "{address}" }}\n'))

        async with serving("--policy", policy, listen="") as proxy:
            assert proxy.url == f"http://{address}"
            running = proxy.of("serving")[0]["hash"]
            save(policy, text(provider, concurrency=9, rest='server { listen "127.0.0.1:1" }\n'))
            kept = await proxy.says("policy_rejected")
            answers = await policy_hash(proxy.url)

    assert kept["code"] == "HM702"
    assert answers == running


# ---- stopping ----


async def test_sigterm_lets_a_stream_end_well_and_takes_no_new_connections(
    policy: Path, provider: SimulatedProvider
) -> None:
    save(policy, text(provider, concurrency=1))
    gate = trio.Event()
    provider.replies.append(ScriptedReply(hold_after=(1, gate)))
    async with serving("--policy", policy) as proxy, client_of(proxy.url) as client, trio.open_nursery() as nursery:
        stream = await client.chat.completions.create(model="gpt-x", messages=messages(), stream=True)
        chunks: list[Any] = [await anext(aiter(stream))]
        sent_away = trio.Event()

        connected = trio.Event()

        async def waits() -> None:
            async with client_of(proxy.url) as other:
                await other.models.list()  # takes no slot; from here on there is a connection
                connected.set()
                with pytest.raises(openai.InternalServerError) as told:
                    await other.chat.completions.create(model="gpt-x", messages=messages())
            assert (told.value.status_code, told.value.response.headers["retry-after"]) == (503, "1")
            assert told.value.response.headers["x-hivemind-reason"] == "draining"
            sent_away.set()

        nursery.start_soon(waits)
        await connected.wait()
        await trio.sleep(0.5)  # so that it waits; had it not come in time, it would not be let in either
        proxy.signal(signal.SIGTERM)
        draining = await proxy.says("draining")
        with trio.fail_after(PATIENCE_S):
            await sent_away.wait()
        closed = await refused(proxy.url)
        still_running = proxy.process.poll() is None
        gate.set()
        chunks += [chunk async for chunk in stream]
        status = await proxy.ended()

    assert (draining["in_flight"], draining["signal"]) == (1, "SIGTERM")
    assert closed
    assert still_running
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert status == 0
    assert proxy.of("stopped")[0]["level"] == "info"


@pytest.mark.parametrize("workers", [1, 2])
async def test_what_has_not_ended_when_the_patience_has_is_cut_off_and_its_agent_is_told(
    policy: Path, provider: SimulatedProvider, workers: int
) -> None:
    save(policy, text(provider, rest="server { drain 200ms }\n"))
    provider.replies.append(ScriptedReply(hold_after=(1, trio.Event())))
    async with serving("--policy", policy, "--workers", f"{workers}") as proxy, client_of(proxy.url) as client:
        stream = await client.chat.completions.create(model="gpt-x", messages=messages(), stream=True)
        await anext(aiter(stream))
        proxy.signal(signal.SIGTERM)
        with pytest.raises(openai.APIError, match="the proxy has shut down") as told:
            [chunk async for chunk in stream]
        await stream.close()
        status = await proxy.ended()
        await proxy.says("stopped")

    assert told.value.code == "draining"
    assert status == 0
    assert [one["cut_off"] for one in proxy.of("drain_timed_out")] == [1]
    with trio.fail_after(PATIENCE_S):
        await provider.until(lambda: provider.hangups == 1)


async def test_a_second_sigterm_ends_at_once(policy: Path, provider: SimulatedProvider) -> None:
    provider.replies.append(ScriptedReply(hold_after=(1, trio.Event())))
    async with serving("--policy", policy) as proxy, client_of(proxy.url) as client:
        stream = await client.chat.completions.create(model="gpt-x", messages=messages(), stream=True)
        await anext(aiter(stream))
        proxy.signal(signal.SIGTERM)
        await proxy.says("draining")
        proxy.signal(signal.SIGTERM)
        status = await proxy.ended()
        await stream.close()
        await proxy.says("stop_forced")

    assert status == 128 + signal.SIGTERM


# ---- not starting ----


async def test_a_bad_policy_is_status_1_with_its_diagnostics(tmp_path: Path) -> None:
    policy = tmp_path / "team.hmp"
    save(policy, "hmp 1\nprovider anthropic { key env(NOT_SET_ANYWHERE); concurency 3 }\n")

    status, out, err = await run("--policy", policy)

    assert status == 1
    assert out == ""
    assert "error[HM102]" in err
    assert "^^^^^^^^^^" in err


async def test_a_missing_file_is_status_2(tmp_path: Path) -> None:
    status, _, err = await run("--policy", tmp_path / "none.hmp")

    assert status == 2
    assert "none.hmp" in err
    assert "No such file" in err


async def test_a_port_in_use_is_status_2_and_says_so(policy: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        status, _, err = await run("--policy", policy, "--listen", address)

    assert status == 2
    assert err == (f"hivemind-trio: cannot listen on {address}: the address is in use; is another proxy running?\n")


async def test_with_agent_tokens_it_listens_anywhere_and_a_reload_may_not_take_them_away(
    policy: Path, provider: SimulatedProvider
) -> None:
    save(policy, keyed(provider, rest="agent ci { token env(CI_TOKEN) }\n"))
    async with serving("--policy", policy, listen="0.0.0.0:0", env={"CI_TOKEN": "t", "KEY": "k"}) as proxy:
        running = proxy.of("serving")[0]["hash"]
        save(policy, text(provider))
        kept = await proxy.says("policy_rejected")
        port = urlsplit(proxy.url).port
        answers = await policy_hash(f"http://127.0.0.1:{port}", key="t")

    assert "0.0.0.0" in kept["error"]
    assert answers == running


async def test_beyond_loopback_a_caller_without_a_token_is_rejected(policy: Path, provider: SimulatedProvider) -> None:
    save(policy, keyed(provider, rest="agent ci { token env(CI_TOKEN) }\nagent laptop { }\n"))
    async with serving("--policy", policy, listen="0.0.0.0:0", env={"CI_TOKEN": "t", "KEY": "k"}) as proxy:
        url = f"http://127.0.0.1:{urlsplit(proxy.url).port}/v1/chat/completions"
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
            body = {"model": "m", "messages": []}
            nobody = await client.post(url, json=body)
            ci = await client.post(url, json=body, headers={"authorization": "Bearer t"})
            page = await client.post(url, json=body, headers={"x-api-key": "t", "origin": "https://evil.example"})
            rebound = await client.post(url, json=body, headers={"x-api-key": "t", "host": "evil.example"})

    assert [one.status_code for one in (nobody, ci, page, rebound)] == [401, 200, 403, 421]
    assert any("`laptop`" in line["message"] for line in proxy.of("policy_warning") if line["code"] == "HM601")


async def test_a_policy_without_a_provider_replaces_none_that_has_one(
    policy: Path, provider: SimulatedProvider
) -> None:
    async with serving("--policy", policy) as proxy:
        running = proxy.of("serving")[0]["hash"]
        save(policy, "hmp 1\nlane batch { weight 2 }\n")
        kept = await proxy.says("policy_rejected")
        answers = await policy_hash(proxy.url)
        save(policy, text(provider, concurrency=5))
        loaded = await proxy.says("policy_loaded")

    assert "no provider" in kept["error"]
    assert answers == running
    assert loaded["hash"] != running


# ---- without a policy ----


async def test_without_a_policy_it_says_what_it_found_and_what_to_paste() -> None:
    keys = {"ANTHROPIC_API_KEY": "an-anthropic-key", "OPENAI_API_KEY": "an-openai-key"}
    async with serving(log="text", env=keys) as proxy:
        await proxy.until(lambda: any("export OPENAI_BASE_URL" in line for line in proxy.lines))
        proxy.signal(signal.SIGTERM)
        assert await proxy.ended() == 0

    shown = "\n".join(proxy.lines)
    assert "ANTHROPIC_API_KEY is set" in shown
    assert "OPENAI_API_KEY is set" in shown
    assert "an-anthropic-key" not in shown
    url = next(word for word in shown.split() if word.startswith("address=")).removeprefix("address=")
    assert f"  export ANTHROPIC_BASE_URL={url}" in proxy.lines  # alone on its line: it is pasted as it stands
    assert f"  export OPENAI_BASE_URL={url}/v1" in proxy.lines


async def test_an_ollama_that_answers_is_found() -> None:
    async def ollama(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(b'HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\n{"version":"0.9.0"}')

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, ollama, listeners)
        host = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        status, out, _ = await run("--print-policy", env={"OLLAMA_HOST": host})
        nursery.cancel_scope.cancel()

    assert status == 0
    assert f'"http://{host}"' in out


async def test_the_policy_that_it_prints_is_a_policy() -> None:
    status, out, err = await run("--print-policy", env={"ANTHROPIC_API_KEY": "x", "GEMINI_API_KEY": "y"})

    checked = check("my.hmp", MemoryFiles({"my.hmp": out}))
    assert (status, err) == (0, "")
    assert not checked.diagnostics
    assert checked.program is not None
    assert list(checked.program.providers) == ["anthropic", "gemini"]


async def test_where_nothing_is_found_it_says_what_to_do_and_ends_with_2() -> None:
    status, out, err = await run()

    assert (status, out) == (2, "")
    assert "ANTHROPIC_API_KEY" in err
    assert "--policy" in err
    assert environment()["OLLAMA_HOST"] in err
