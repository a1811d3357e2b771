"""Operators' commands over the real control socket of a real `serve`."""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hivemind_trio.demo import ScriptedReply, SimulatedProvider
from tests.e2e.control import (
    BODY,
    CAP_1,
    asked,
    asking,
    command,
    eventually,
    found,
    mode,
    occupied,
    policy,
    state_of,
    there,
)
from tests.e2e.process import PATIENCE_S, serving


async def resource(control: httpx2.AsyncClient, path: str) -> Any:
    return (await control.get(path)).json()


def all_foreseen(queue: Any) -> bool:
    """Return True if the estimate, which is made once a second at most, knows of every call."""
    return all(start["p50_at"] is not None for row in queue["queue"] for start in row["starts"])


async def test_an_operator_sees_what_runs_what_waits_and_for_what(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = policy(tmp_path, provider.url)
    async with (
        serving("--policy", path, env=runtime) as proxy,
        occupied(proxy, provider, 3),
        asked(proxy) as control,
    ):
        await eventually(partial(resource, control, "/v1/queue"), all_foreseen)
        status = await found(runtime, "status")
        queue = await found(runtime, "queue")
        calls = (await found(runtime, "calls"))["calls"]
        waiting = (await found(runtime, "calls", "--state", "waiting", "--limit", "1"))["calls"]
        _, youngest, _ = await command(runtime, "calls", "--limit", "1")
        _, everything, _ = await command(runtime, "calls")
        _, text, _ = await command(runtime, "status")
        _, table, _ = await command(runtime, "queue")
        story = await found(runtime, "explain", waiting[0]["id"])
        _, told, _ = await command(runtime, "explain", waiting[0]["id"])

    assert status["policy"]["path"] == str(path)
    assert status["address"] == proxy.url
    assert status["pid"] == proxy.process.pid
    assert (status["waiting"], status["inflight"], status["cap"], status["agents"]) == (2, 1, 1, 1)
    assert status["providers"][0]["name"] == "sim"
    assert {lane["name"]: (lane["waiting"], lane["inflight"]) for lane in status["lanes"]} == {
        "slow": (2, 1), "default": (0, 0)
    }  # fmt: skip

    assert youngest.splitlines()[1].split()[0] == calls[-1]["id"]
    assert youngest.splitlines()[2:] == ["older calls are left out: --limit 10"]
    assert [line.split()[0] for line in everything.splitlines()[1:]] == [one["id"] for one in calls]

    (row,) = queue["queue"]
    assert (row["lane"], row["provider"], row["reason"]) == ("slow", "sim", "provider-concurrency")
    assert (row["n"], row["agents"]) == (2, 1)
    assert row["text"] == "provider `sim` is at its concurrency limit of 1"
    assert row["first_deadline_at"] is not None
    # Nothing has ended yet: answers are taken to last 15 s, and the second waits for two.
    assert row["first"] == row["starts"][0]
    assert row["last"] == row["starts"][1]
    middle = [datetime.fromisoformat(start["p50_at"]) for start in row["starts"]]
    assert (middle[1] - middle[0]).total_seconds() == 15
    assert all(start["p50_at"] <= start["p90_at"] for start in (*row["starts"], story["start"]))
    (agent,) = queue["agents"]
    assert (agent["agent"], agent["n"], agent["first"], agent["last"]) == ("ci", 2, row["first"], row["last"])
    slow = next(lane for lane in status["lanes"] if lane["name"] == "slow")
    assert slow["first"]["p50_at"] < slow["last"]["p50_at"]
    assert "starts     about 2" in told

    assert sorted(call["state"] for call in calls) == ["inflight", "waiting", "waiting"]
    assert {call["agent"] for call in calls} == {"ci"}
    assert {call["model"] for call in calls} == {"claude-haiku-4-5"}
    listed = next(call for call in calls if call["id"] == waiting[0]["id"])
    assert listed["state"] == "waiting"
    assert waiting == [listed | {key: waiting[0][key] for key in ("age_s", "waited_s", "deadline_at")}]

    assert "2 waiting" in text
    assert "1 of 1 in flight" in text
    assert "provider-concurrency" in table
    assert "\x1b" not in text + table


async def test_a_call_that_others_go_before_says_what_its_agent_has_had(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    gates = [trio.Event() for _ in range(3)]
    provider.replies += [ScriptedReply(hold=gate) for gate in gates]
    async with (
        serving("--policy", policy(tmp_path, provider.url), env=runtime) as proxy,
        asked(proxy) as control,
        httpx2.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S) as client,
        trio.open_nursery() as nursery,
    ):

        async def begin(agent: str, live: int) -> None:
            nursery.start_soon(partial(client.post, f"/@{agent}/v1/messages", json=BODY))
            await eventually(state_of(control), lambda now: now["inflight"] + now["waiting"] == live)

        await begin("hog", 1)
        gates[0].set()
        await eventually(state_of(control), lambda now: now["calls"]["ended"] == 1)
        for live, agent in enumerate(("first", "hog", "modest"), 1):
            await begin(agent, live)
        (waits, *_) = (await found(runtime, "calls", "--state", "waiting"))["calls"]
        gates[1].set()
        explained = partial(resource, control, f"/v1/calls/{waits['id']}/explain")
        story = await eventually(explained, lambda now: "went first" in now["text"])
        _, told, _ = await command(runtime, "explain", waits["id"])
        gates[2].set()
        await eventually(state_of(control), lambda now: now["calls"]["ended"] == 4)
        after = await eventually(
            partial(resource, control, f"/v1/calls/{waits['id']}/story"), lambda now: "story" in now
        )

    text = "provider `sim` is at its concurrency limit of 1; another one went first: agent `hog@"
    assert story["text"].startswith(text), story["text"]
    assert story["text"].endswith("in the 5 minutes before, and that one 0.0")
    assert f"waiting: {story['text']}" in told
    assert story["text"].partition("; ")[2] == after["story"]["attempts"][0]["turn"]["text"]


async def test_calls_that_have_ended_and_budgets_are_shown(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    async with serving("--policy", policy(tmp_path, provider.url), env=runtime) as proxy:
        async with httpx2.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S) as agents:
            answer = await agents.post("/@ci/v1/messages", json=BODY)
        name = answer.headers["x-hivemind-call"]
        async with asking((await proxy.says("control_opened"))["socket"]) as control:

            async def ended() -> Any:
                return (await control.get("/v1/calls", params={"state": "ended"})).json()["calls"]

            (call,) = await eventually(ended, lambda calls: len(calls) == 1)
            one = (await control.get(f"/v1/calls/{name}")).json()
            budgets = (await control.get("/v1/budgets")).json()["budgets"]
        _, table, _ = await command(runtime, "calls", "--state", "ended")
        _, none, _ = await command(runtime, "calls")
        _, of_lane, _ = await command(runtime, "calls", "--lane", "slow", "--state", "waiting")

    assert call["id"] == name
    assert (call["state"], call["status"], call["lane"], call["attempts"]) == ("ended", 200, "slow", 1)
    assert one == call | {"ended_at": one["ended_at"]}
    assert [(budget["budget"], budget["spent"], budget["share"], budget["claimed"]) for budget in budgets] == [
        ("calls", 1, 0.01, 0)
    ]
    assert budgets[0]["resets_at"].endswith("Z")
    assert name in table
    assert (none, of_lane) == ("no call is in progress\n", "no call of lane slow waits\n")


async def test_only_the_user_may_connect_and_the_socket_goes_with_the_proxy(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    async with serving("--policy", policy(tmp_path, provider.url), env=runtime) as proxy:
        socket = Path((await proxy.says("control_opened"))["socket"])
        assert socket.parent == Path(runtime["XDG_RUNTIME_DIR"]) / "hivemind-trio"
        assert (mode(socket), mode(socket.parent)) == (0o600, 0o700)
        proxy.signal(signal.SIGTERM)
        assert await proxy.ended() == 0

    assert not there(socket)
    code, out, error = await command(runtime, "status")
    assert (code, out) == (2, "")
    assert "no proxy runs" in error
    assert "hivemind-trio serve" in error


async def test_operators_see_a_proxy_that_drains(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    gate = trio.Event()
    provider.default = ScriptedReply(hold=gate)
    async with (
        serving("--policy", policy(tmp_path, provider.url), env=runtime) as proxy,
        asked(proxy) as control,
        httpx2.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S) as agents,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(lambda: agents.post("/@ci/v1/messages", json=BODY))
        await eventually(state_of(control), lambda now: now["inflight"] == 1)
        ready = await control.get("/readyz")
        proxy.signal(signal.SIGTERM)
        await proxy.says("draining")
        status = await found(runtime, "status")
        unready = await control.get("/readyz")
        gate.set()
        assert await proxy.ended() == 0

    assert (ready.status_code, unready.status_code) == (200, 503)
    assert (status["draining"], status["inflight"], status["notices"][0]["kind"]) == (True, 1, "draining")


async def test_a_provider_that_cannot_be_reached_is_noticed_with_its_cause(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    path = policy(tmp_path, "http://127.0.0.1:1")
    async with serving("--policy", path, env=runtime) as proxy, httpx2.AsyncClient(base_url=proxy.url) as agents:
        before = await found(runtime, "status")
        answer = await agents.post("/v1/messages", json=BODY, timeout=PATIENCE_S)
        notices = (await found(runtime, "status"))["notices"]
        _, text, _ = await command(runtime, "status")

    said = "provider `sim` was unreachable when last called: the connection is refused: nothing listens there"
    assert (before["notices"], answer.status_code) == ([], 503)
    assert [(one["kind"], one["subject"], one["text"]) for one in notices] == [("unreachable", "sim", said)]
    assert notices[0]["since_at"] is not None
    assert said in text


async def test_a_socket_that_a_killed_proxy_left_is_passed_over_and_replaced(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = policy(tmp_path, provider.url)
    async with serving("--policy", path, env=runtime) as proxy:
        socket = Path((await proxy.says("control_opened"))["socket"])
        proxy.signal(signal.SIGKILL)
        await proxy.ended()
    assert there(socket)
    assert (await command(runtime, "status"))[0] == 2

    async with serving("--policy", path, env=runtime) as proxy:
        assert (await proxy.says("control_opened"))["socket"] == str(socket)
        assert (await found(runtime, "status"))["pid"] == proxy.process.pid


async def test_of_several_proxies_one_is_chosen_by_policy_or_socket(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    one, other = policy(tmp_path, provider.url, "one.hmp"), policy(tmp_path, provider.url, "other.hmp")
    async with serving("--policy", one, env=runtime) as first, serving("--policy", other, env=runtime) as second:
        code, _, error = await command(runtime, "status")
        by_policy = await found(runtime, "status", "--policy", str(other))
        socket = (await first.says("control_opened"))["socket"]
        by_socket = await found(runtime, "status", "--socket", socket)
        missing = await command(runtime, "status", "--policy", str(tmp_path / "none.hmp"))
        client = await command(runtime, "setup", "generic", "--policy", str(other))
        any_client = await command(runtime, "setup", "generic")

    assert code == 2
    assert str(one) in error
    assert str(other) in error
    assert "--socket" in error
    assert by_policy["pid"] == second.process.pid
    assert by_socket["pid"] == first.process.pid
    assert missing[0] == 2
    assert "no such file" in missing[2]
    assert (client[0], f"ANTHROPIC_BASE_URL={second.url}\n" in client[1], client[2]) == (0, True, "")
    assert (any_client[0], "2 proxies run" in any_client[2]) == (2, True)


async def test_a_second_proxy_of_the_same_policy_has_a_socket_of_its_own(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(CAP_1.format(url=provider.url) + "store memory { }\n")
    async with serving("--policy", path, env=runtime) as first, serving("--policy", path, env=runtime) as second:
        sockets = [(await proxy.says("control_opened"))["socket"] for proxy in (first, second)]
        statuses = [await found(runtime, "status", "--socket", socket) for socket in sockets]

    assert [status["pid"] for status in statuses] == [first.process.pid, second.process.pid]


async def test_without_a_place_for_the_socket_calls_are_served_all_the_same(
    tmp_path: Path, provider: SimulatedProvider
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    path = policy(tmp_path, provider.url)
    async with serving("--policy", path, env={"XDG_RUNTIME_DIR": str(blocked)}) as proxy:
        said = await proxy.says("control_unavailable")
        async with httpx2.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S) as agents:
            assert (await agents.post("/v1/messages", json=BODY)).status_code == 200

    assert "XDG_RUNTIME_DIR" in said["help"]


async def test_the_socket_is_where_the_policy_has_it_and_commands_find_it(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path, place = policy(tmp_path, provider.url), tmp_path / "deep" / "control.sock"
    path.write_text(path.read_text() + f'server {{ admin "unix:{place}" }}\n')
    async with serving("--policy", path, env=runtime) as proxy:
        assert mode(place) == 0o600
        found = await command(runtime, "status", "--json")
        named = await command(runtime, "status", "--policy", str(path), "--json")
        proxy.signal(signal.SIGTERM)
        assert await proxy.ended() == 0
    assert (found[0], named[0]) == (0, 0)
    assert not there(place)
    assert os.listdir(Path(runtime["XDG_RUNTIME_DIR"]) / "hivemind-trio") == []


async def test_a_path_longer_than_the_system_takes_is_reached(tmp_path: Path, provider: SimulatedProvider) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    runtime = {"XDG_RUNTIME_DIR": str(folder)}
    async with serving("--policy", policy(tmp_path, provider.url), env=runtime) as proxy:
        await proxy.says("control_opened")
        assert (await found(runtime, "status"))["pid"] == proxy.process.pid


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "bad-request"),
        (b"GET /v1/status HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400, "bad-request"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n", 431, "header-too-large"),
        (b"GET / HTTP/3.0\r\nhost: a\r\n\r\n", 505, "http-version"),
        (b"GET @/v1/status HTTP/1.1\r\nhost: a\r\n\r\n", 400, "bad-request"),
        (b"TRACE /v1/status HTTP/1.1\r\nhost: a\r\n\r\n", 405, "method-not-allowed"),
    ],
)
async def test_what_cannot_be_read_gets_problem_details_too(
    request_: bytes, status: int, code: str, tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    async with serving("--policy", policy(tmp_path, provider.url), env=runtime) as proxy:
        stream = await trio.open_unix_socket((await proxy.says("control_opened"))["socket"])
        with trio.fail_after(PATIENCE_S):
            async with stream:
                await stream.send_all(request_)
                await stream.send_eof()
                answer = b"".join([part async for part in stream])

    head, _, body = answer.partition(b"\r\n\r\n")
    problem = json.loads(body)
    assert b"content-type: application/problem+json" in head
    assert (head.split()[1], problem["status"], problem["code"]) == (b"%d" % status, status, code)
    assert (b"\r\nallow: " in head) is (status == 405)


async def test_errors_are_problem_details(tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider) -> None:
    path = policy(tmp_path, provider.url)
    async with serving("--policy", path, env=runtime) as proxy, asked(proxy) as control:
        health = await control.get("/healthz")
        head = await control.head("/v1/status")
        answers = [
            await control.get("/v1/nothing"),
            await control.get("/v1/calls/none"),
            await control.post("/v1/status"),
            await control.get("/v1/calls", params={"state": "asleep"}),
            await control.get("/v1/calls", params={"limit": "0"}),
            await control.get("/v1/queue", params={"lane": "a"}),
            await control.request("GET", "/v1/queue", content=b"x" * 70_000),
            await control.request("GET", "/v1/queue", content=b"\xff"),
        ]

    assert (health.status_code, health.json()) == (200, {"status": "ok"})
    assert (head.status_code, head.content) == (200, b"")
    problems = [answer.json() for answer in answers]
    assert [(problem["status"], problem["code"]) for problem in problems] == [
        (404, "no-such-resource"), (404, "no-such-resource"), (405, "method-not-allowed"), (400, "bad-argument"),
        (400, "bad-argument"), (400, "bad-argument"), (413, "body-too-large"), (400, "bad-argument"),
    ]  # fmt: skip
    assert [answer.status_code for answer in answers] == [problem["status"] for problem in problems]
    assert {answer.headers["content-type"] for answer in answers} == {"application/problem+json"}
    assert answers[2].headers["allow"] == "GET, HEAD"
    assert all(problem["detail"] and problem["title"] for problem in problems)
