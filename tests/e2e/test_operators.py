"""Operators' changes of a running proxy: pauses, cancelled calls and priorities, over the real control socket."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hivemind_trio.demo import ScriptedReply, SimulatedProvider
from tests.e2e.control import BODY, asked, command, eventually, found, policy, state_of
from tests.e2e.process import PATIENCE_S, Proxy, serving


def calls_are(number: int) -> Callable[[Any], bool]:
    return lambda now: now["inflight"] + now["waiting"] == number


def agents(proxy: Proxy) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S)


@pytest.mark.parametrize("target", [("provider", "sim"), ("lane", "slow"), ("agent", "ci")])
async def test_calls_of_what_is_paused_wait_until_it_is_resumed(
    target: tuple[str, str], tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    statuses: list[int] = []
    async with (
        serving("--policy", policy(tmp_path, provider.url), env=runtime) as proxy,
        asked(proxy) as control,
        agents(proxy) as client,
        trio.open_nursery() as nursery,
    ):

        async def one() -> None:
            statuses.append((await client.post("/@ci/v1/messages", json=BODY)).status_code)

        code, out, _ = await command(runtime, "pause", *target)
        assert (code, out) == (0, f"paused: {' '.join(target)}, 0 calls waiting\n")
        nursery.start_soon(one)
        status = await eventually(state_of(control), lambda now: now["waiting"] == 1)
        queue = await found(runtime, "queue")
        listed = await found(runtime, "pause")
        assert provider.seen == type(provider.seen)(maxlen=provider.seen.maxlen)
        code, out, _ = await command(runtime, "resume", *target)
        assert (code, out) == (0, "nothing is paused\n")
        again = await command(runtime, "resume", *target)

    assert statuses == [200]
    assert [row["reason"] for row in queue["queue"]] == ["paused"]
    assert listed["paused"] == [{"kind": target[0], "name": target[1], "waiting": 1, "known": True}]
    assert [notice["kind"] for notice in status["notices"]] == ["paused"]
    assert again[0] == 2
    assert "is not paused" in again[2]
    acts = proxy.of("operator_acted")
    assert [(act["action"], act["subject"]) for act in acts] == [
        ("pause", " ".join(target)), ("resume", " ".join(target))
    ]  # fmt: skip
    assert all(act["by"].startswith(f"user {os.getuid()} process ") for act in acts)


async def test_a_name_that_the_policy_does_not_have_is_refused(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    async with serving("--policy", policy(tmp_path, provider.url), env=runtime):
        lane = await command(runtime, "pause", "lane", "slwo")
        call = await command(runtime, "cancel", "none-1")
        bare = await command(runtime, "pause", "lane")
        code, out, _ = await command(runtime, "pause", "agent", "cii")

    assert code == 0
    assert out.startswith("paused: agent cii, which has not called: the policy has no such agent")
    assert (lane[0], call[0], bare[0]) == (2, 2, 2)
    assert "the policy has no lane `slwo`; it has slow, default" in lane[2]
    assert "no call `none-1`" in call[2]
    assert "pause lane NAME" in bare[2]


async def test_a_cancelled_call_is_rejected_and_its_slot_is_free(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    provider.replies.append(ScriptedReply(hold=trio.Event()))
    answers: list[Any] = []
    async with (
        serving("--policy", policy(tmp_path, provider.url), "--log-calls", env=runtime) as proxy,
        asked(proxy) as control,
        agents(proxy) as client,
        trio.open_nursery() as nursery,
    ):

        async def one() -> None:
            answers.append(await client.post("/@ci/v1/messages", json=BODY))

        nursery.start_soon(one)
        await eventually(state_of(control), lambda now: now["inflight"] == 1)
        nursery.start_soon(one)
        await eventually(state_of(control), lambda now: now["waiting"] == 1)
        flying, waiting = (call["id"] for call in (await found(runtime, "calls"))["calls"])
        code, out, _ = await command(runtime, "cancel", waiting)
        assert (code, out) == (0, f"cancelled {waiting}, which was waiting\n")
        status = await eventually(state_of(control), lambda now: now["waiting"] == 0)
        assert status["inflight"] == 1
        assert (await found(runtime, "cancel", flying))["state"] == "inflight"
        await eventually(state_of(control), lambda now: now["inflight"] == 0)
        await one()
        ended = (await found(runtime, "calls", "--state", "ended"))["calls"]

    assert [answer.status_code for answer in answers] == [403, 403, 200]
    for answer in answers[:2]:
        assert answer.headers["x-hivemind-reason"] == "cancelled"
        assert answer.headers["x-should-retry"] == "false"
        assert "cancelled by an operator" in answer.json()["error"]["message"]
    assert [(call["id"], call["reason"], call["status"]) for call in ended[:2]] == [
        (waiting, "cancelled", 403), (flying, "cancelled", 403)
    ]  # fmt: skip
    assert provider.hangups == 1


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
async def test_a_cancelled_stream_that_has_begun_ends_with_an_error_event(
    http2: bool, tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    provider.replies.append(ScriptedReply(hold_after=(3, trio.Event())))
    came = b""
    async with (
        serving("--policy", policy(tmp_path, provider.url), env=runtime) as proxy,
        httpx2.AsyncClient(http1=not http2, http2=http2, trust_env=False, timeout=PATIENCE_S) as client,
        client.stream("POST", f"{proxy.url}/@ci/v1/messages", json={**BODY, "stream": True}) as answer,
    ):
        pieces = answer.aiter_raw()
        came += await anext(pieces)
        call = answer.headers["x-hivemind-call"]
        code, _, error = await command(runtime, "cancel", call)
        assert code == 0, error
        with suppress(httpx2.RemoteProtocolError):
            while True:
                came += await anext(pieces)
        code, story, error = await command(runtime, "explain", call)

    assert answer.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
    event, data = came.rpartition(b"event: error\n")[1:]
    assert event
    assert "cancelled by an operator" in json.loads(data.removeprefix(b"data: "))["error"]["message"]
    assert (code, "cancelled" in story) == (0, True), error
    assert provider.hangups == 1


async def test_a_call_with_a_higher_priority_goes_first(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    gate = trio.Event()
    provider.replies.append(ScriptedReply(hold=gate))
    order: list[int] = []
    async with (
        serving("--policy", policy(tmp_path, provider.url), env=runtime) as proxy,
        asked(proxy) as control,
        agents(proxy) as client,
        trio.open_nursery() as nursery,
    ):

        async def one(number: int) -> None:
            await client.post("/@ci/v1/messages", json=BODY)
            order.append(number)

        for number in range(3):
            nursery.start_soon(one, number)
            await eventually(state_of(control), calls_are(number + 1))
        calls = (await found(runtime, "calls"))["calls"]
        code, out, error = await command(runtime, "priority", calls[2]["id"], "7")
        assert (code, out) == (0, f"{calls[2]['id']} has priority 7 and is waiting\n"), error
        late = await command(runtime, "priority", calls[0]["id"], "7")
        code, text, error = await command(runtime, "explain", calls[2]["id"])
        assert code == 0, error
        story = await found(runtime, "explain", calls[1]["id"])
        gate.set()

    assert order == [0, 2, 1]
    assert "waiting: provider `sim` is at its concurrency limit of 1" in text
    assert "1 of 2 waiting calls of its lane arrived before it" in text
    assert "priority: operator" in text
    assert (story["call"]["id"], story["waiting_before"]) == (calls[1]["id"], 0)
    assert ("lane", "agent", "ci") in [(one["setting"], one["by"], one["name"]) for one in story["decided"]]
    assert late[0] == 2
    assert "does not wait" in late[2]


def answer_of(tokens_in: int) -> ScriptedReply:
    usage = {"input_tokens": tokens_in, "output_tokens": 10}
    body = {"type": "message", "role": "assistant", "content": [], "model": BODY["model"], "usage": usage}
    return ScriptedReply(status=200, body=json.dumps(body).encode())


async def test_explain_says_when_the_window_of_a_session_is_full(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    gate = trio.Event()
    provider.replies += [answer_of(1_000), answer_of(1_500), answer_of(20_000), ScriptedReply(hold=gate)]
    path = policy(tmp_path, provider.url)
    path.write_text(path.read_text().replace("api generic", "api anthropic"))
    async with (
        serving("--policy", path, env=runtime) as proxy,
        asked(proxy) as control,
        agents(proxy) as client,
        trio.open_nursery() as nursery,
    ):

        async def one(job: str) -> None:
            answer = await client.post("/@ci/v1/messages", json=BODY, headers={"x-hivemind-job": job})
            assert answer.status_code == 200

        for job in ("j", "j", "another"):
            await one(job)
        nursery.start_soon(one, "j")
        await eventually(state_of(control), calls_are(1))
        (call,) = (await found(runtime, "calls"))["calls"]
        story = await found(runtime, "explain", call["id"])
        _, text, _ = await command(runtime, "explain", call["id"])
        _, overview, _ = await command(runtime, "status")
        listed = (await control.get("/v1/sessions")).json()["sessions"]
        fullest = (await control.get("/v1/sessions?limit=1&agent=ci")).json()["sessions"]
        gate.set()

    session = story["call"]["session"]
    assert [(one["session"], one["agent"], one["context"]) for one in listed] == [
        ("another", "ci", 20_010),
        ("j", "ci", 1_510),
    ]
    assert [one["session"] for one in fullest] == ["another"]
    assert {**session, "age_s": 0} == {**listed[1], "age_s": 0}
    row = next(line.split() for line in overview.splitlines() if line.startswith("j "))
    assert row[:10] == ["j", "ci", BODY["model"], "2", "1,510", "of", "200,000", "500", "396", "$0.00"]
    assert (session["turns"], session["context"], session["growth"]) == (2, 1_510, 500)
    assert (session["window"], session["turns_left"]) == (200_000, 396)
    assert session["cost"] == pytest.approx(2_500e-6 + 20 * 5e-6)
    assert "turns: 2; context: 1,510 of 200,000 tokens, 500 more each turn, full after 396 more; $0.00 in" in text


async def test_a_provider_is_shown_with_its_limits_beliefs_models_and_circuit(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = tmp_path / "team.hmp"
    settings = (
        "concurrency 2; limits { requests 600/min }; retry once; breaker trip 50% of 4 over 60s open 60s probes 1"
    )
    path.write_text(
        f'hmp 1\nprovider sim {{ api generic; base "{provider.url}"; {settings} }}\n'
        'provider idle { api generic; base "http://127.0.0.1:9" }\nretry once { attempts 1 }\n'
    )
    async with serving("--policy", path, env=runtime) as proxy, asked(proxy) as control, agents(proxy) as client:
        provider.replies.append(ScriptedReply(status=429, headers=[(b"retry-after", b"1")]))
        provider.replies.extend([ScriptedReply(status=500)] * 3)
        provider.replies.extend([ScriptedReply(status=200)])
        while (await found(runtime, "status", "sim"))["provider"]["circuit"] == "closed":
            await client.post("/@ci/v1/messages", json=BODY)
        for _ in range(3):  # the circuit half-opens by itself, perhaps between two answers
            shown = await found(runtime, "status", "sim")
            code, text, _ = await command(runtime, "status", "sim")
            api = (await control.get("/v1/providers/sim")).json()
            if shown["circuit"] == api["circuit"]:
                break
        _, idle, _ = await command(runtime, "status", "idle")
        wrong, _, error = await command(runtime, "status", "smi")

    assert (code, shown["models"], shown["circuit"]) == (0, api["models"], api["circuit"])
    rows = {line.split("  ")[0]: line.split() for line in text.splitlines() if line}
    (model,) = shown["models"]
    numbers = [f"{model[name]:,}" for name in ("inflight", "attempts", "refused", "failed")]
    assert rows[model["model"]][1:5] == numbers
    assert text.startswith(("sim  circuit open", "sim  circuit half-open"))
    assert [word in text for word in ("requests", "as declared", "believed")] == [True] * 3
    assert shown["circuit"][0]["because"] in text
    assert "It has refused no call for its rate." in idle
    assert "No attempt has ended in the last hour." in idle
    assert "Its circuit has been closed all the time." in idle
    assert wrong == 2
    assert "the policy has no provider `smi`; it has sim, idle" in error


async def test_a_reload_says_what_came_of_it_and_heeds_its_condition(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = policy(tmp_path, provider.url)
    async with serving("--policy", path, env=runtime) as proxy, asked(proxy) as control:
        first = (await control.get("/v1/policy")).json()
        still = await command(runtime, "reload", "--if-match", first["hash"][:8])
        short, weak, listed, any_ = [
            await control.post("/v1/reload", headers={"if-match": condition})
            for condition in (f'"{first["hash"][:7]}"', f'W/"{first["hash"]}"', f'"00000000", "{first["hash"]}"', "*")
        ]
        path.write_text(path.read_text().replace("300s", "200s"))
        other = await control.post("/v1/reload", headers={"if-match": '"00000000"'})
        code, out, error = await command(runtime, "reload")
        second = (await control.get("/v1/policy")).json()
        text = await command(runtime, "reload", "--diff")

        path.write_text(path.read_text() + "lane slow { }\n")
        bad = await command(runtime, "reload")
        status = await found(runtime, "status")
        refused = await control.post("/v1/reload")
    acts = proxy.of("operator_acted")

    assert first["files"] == {str(path): path.read_text().replace("200s", "300s").removesuffix("lane slow { }\n")}
    assert first["path"] == str(path)
    assert [one.status_code for one in (short, weak, listed, any_)] == [412, 412, 200, 200]
    assert "8 or more of its first characters" in short.json()["detail"]
    assert still[:2] == (0, f"policy {first['hash'][:8]} is in force, as before\n")
    assert second["hash"] != first["hash"]
    assert (other.status_code, other.json()["code"]) == (412, "precondition-failed")
    assert first["hash"][:8] in other.json()["detail"]
    assert code == 0, error
    assert out.startswith(f"policy {second['hash'][:8]} is in force, ")
    assert text[0] == 0
    assert text[1].endswith(": nothing changes\n")
    assert bad[0] == 2
    assert "the running policy stays" in bad[2]
    assert f"{path}:" in bad[2]
    assert status["policy"]["hash"] == second["hash"]
    assert (refused.status_code, refused.json()["code"]) == (422, "policy-rejected")
    assert refused.json()["diagnostics"]
    assert (acts[0]["action"], acts[0]["detail"]) == ("reload", first["hash"][:8])


async def test_a_budget_is_reset_and_set_and_stays_so_over_a_kill(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = policy(tmp_path, provider.url)
    path.write_text(path.read_text().replace("100/day", '1/day; at 100% { deny "enough" }'))

    async def ask(proxy: Proxy) -> int:
        async with agents(proxy) as client:
            return (await client.post("/@ci/v1/messages", json=BODY)).status_code

    async with serving("--policy", path, env=runtime) as proxy:
        assert [await ask(proxy), await ask(proxy)] == [200, 429]
        code, out, error = await command(runtime, "budget", "reset", "calls")
        assert code == 0, error
        assert "0%" in out
        assert [await ask(proxy), await ask(proxy)] == [200, 429]
        await found(runtime, "budget", "reset", "calls")
        wrong = [
            await command(runtime, "budget", "reset", "cals"),
            await command(runtime, "budget", "set", "calls", "$3"),
            await command(runtime, "budget", "set", "calls", "many"),
            await command(runtime, "budget", "reset", "calls", "--of", "nobody"),
        ]
        proxy.signal(signal.SIGKILL)
        await proxy.ended()
    acts = [(act["action"], act["subject"], act["detail"]) for act in proxy.of("operator_acted")]
    async with serving("--policy", path, env=runtime) as proxy:
        # An account without spending may be kept or not.
        assert [account["spent"] for account in (await found(runtime, "budget"))["budgets"]] in ([], [0])
        assert [await ask(proxy), await ask(proxy)] == [200, 429]
        assert (await found(runtime, "budget", "set", "calls", "0"))["budgets"][0]["spent"] == 0
        assert await ask(proxy) == 200

    assert acts[0] == ("budget reset", "calls (1 requests per day)", "was 1 requests")
    assert [code for code, _, _ in wrong] == [2, 2, 2, 2]
    assert "it has calls" in wrong[0][2]
    assert "counts requests" in wrong[1][2]
    assert "no amount" in wrong[2][2]
    assert "no such account" in wrong[3][2]


async def test_a_budget_per_agent_is_shown_and_reset_by_the_agents_name(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = policy(tmp_path, provider.url)
    path.write_text(path.read_text().replace("budget calls", "budget calls per agent"))
    async with serving("--policy", path, env=runtime) as proxy, agents(proxy) as client:
        for name in ("/@ci", "/@nobody"):
            assert (await client.post(f"{name}/v1/messages", json=BODY)).status_code == 200
        before = (await found(runtime, "budget"))["budgets"]
        code, _, error = await command(runtime, "budget", "reset", "calls", "--of", "ci")
        assert code == 0, error
        after = (await found(runtime, "budget"))["budgets"]
    acts = [(act["action"], act["subject"]) for act in proxy.of("operator_acted")]

    assert {account["whose"]: account["spent"] for account in before} == {"ci": 1, "127.0.0.1": 1}
    assert {account["whose"]: account["spent"] for account in after} == {"ci": 0, "127.0.0.1": 1}
    assert acts == [("budget reset", "calls of ci (100 requests per day)")]
