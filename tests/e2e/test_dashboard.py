"""The page for operators: who gets in, and what a browser shows."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import trio

from hivemind_trio.cli.control.dashboard import CONTAINER_FILES
from hivemind_trio.demo import INSTANT, ScriptedReply, SimulatedProvider
from tests.e2e.control import BODY, asked, command, eventually, found, occupied, own_runtime
from tests.e2e.process import PATIENCE_S, Proxy, serving
from tests.support.chromium import CONTRAST, Chromium, chromium, needs_chromium
from tests.support.ports import kept_port

pytestmark = pytest.mark.slow

POLICY: Final = """
hmp 1
server {{ admin "127.0.0.1:{port}" token env(HIVEMIND_ADMIN_TOKEN) }}
provider sim {{ api generic; base "{url}"; concurrency 1 }}
lane slow {{ deadline 300s }}
team red {{ weight 2 }}
agent ci {{ team red; lane slow }}
budget calls {{ requests 100/day }}
rule quick when model == "quick" {{ lane default }}
"""

NASTY: Final = "<img src=x onerror=document.title='owned'>"
LONG: Final = "a" * 64


@pytest.fixture
def port() -> Iterator[int]:
    """Give a port that a proxy can have twice, before and after it is killed."""
    with kept_port() as kept:
        yield kept


@pytest.fixture
def runtime() -> Iterator[dict[str, str]]:
    with own_runtime() as env:
        yield {**env, "HIVEMIND_ADMIN_TOKEN": "correct-horse"}


@pytest.fixture
async def provider(nursery: trio.Nursery) -> AsyncIterator[SimulatedProvider]:
    simulated = SimulatedProvider(INSTANT)
    await nursery.start(simulated.run)
    yield simulated
    nursery.cancel_scope.cancel()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as one:
        yield one


@asynccontextmanager
async def served(
    folder: Path, provider: SimulatedProvider, env: dict[str, str], port: int, policy: str = POLICY
) -> AsyncIterator[Proxy]:
    path = folder / "team.hmp"
    path.write_text(policy.format(url=provider.url, port=port))
    async with serving("--policy", path, env={**env, "XDG_STATE_HOME": str(folder / "state")}) as proxy:
        yield proxy


async def link(env: dict[str, str]) -> str:
    url: str = (await found(env, "dashboard"))["url"]
    return url


# ---- who gets in ----


async def test_a_link_signs_a_browser_in_once_and_nothing_else_does(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider, port: int
) -> None:
    async with served(tmp_path, provider, runtime, port):
        url = await link(runtime)
        base = f"http://127.0.0.1:{port}"
        assert url.startswith(f"{base}/")
        async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as stranger:
            assert (await stranger.get(f"{base}/")).status_code == 401
            assert (await stranger.get(f"{base}/v1/status")).status_code == 401
            assert (await stranger.get(f"{base}/dashboard/main.js")).status_code == 401
            assert (await stranger.post(f"{base}/v1/dashboard")).status_code == 401
        async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as signed_in:
            opened = await signed_in.get(url)
            assert (opened.status_code, opened.headers["location"]) == (303, "/")
            assert {"HttpOnly", "SameSite=Strict"} <= set(opened.headers["set-cookie"].split("; "))
            page = await signed_in.get(f"{base}/")
            assert page.headers["content-security-policy"].startswith("default-src 'self'")
            assert (await signed_in.get(f"{base}/v1/status")).status_code == 200
            lane = {"kind": "lane", "name": "slow"}
            evil = await signed_in.post(f"{base}/v1/pause", json=lane, headers={"origin": "http://127.0.0.1:1"})
            assert evil.status_code == 403
            assert (await signed_in.post(f"{base}/v1/pause", json=lane, headers={"origin": base})).status_code == 200
        async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as late:
            assert (await late.get(url)).status_code == 403
            assert (await late.get(f"{base}/")).status_code == 401


async def test_without_an_address_the_page_is_at_a_port_of_loopback(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(f'hmp 1\nprovider sim {{ api generic; base "{provider.url}" }}\n')
    async with serving("--policy", path, env=runtime):
        first, second = await link(runtime), await link(runtime)
        code, text, error = await command(runtime, "dashboard")
        assert code == 0
        assert ("inside of the container only" in error) is any(file.exists() for file in CONTAINER_FILES)
        assert first.split("?")[0] == second.split("?")[0] == text.split("?")[0]
        async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False, follow_redirects=True) as signed_in:
            assert "<title>hivemind-trio" in (await signed_in.get(first)).text
            assert (await signed_in.get(f"{first.split('/dashboard')[0]}/v1/status")).status_code == 200


async def test_the_feed_begins_with_everything_and_its_readers_are_bounded(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(f'hmp 1\nprovider sim {{ api generic; base "{provider.url}" }}\n')
    with trio.fail_after(PATIENCE_S):
        async with serving("--policy", path, env=runtime) as proxy, asked(proxy) as control:
            where = (await proxy.says("control_opened"))["socket"]
            async with AsyncExitStack() as readers:
                for _ in range(16):
                    stream = await readers.enter_async_context(await trio.open_unix_socket(where))
                    head = await begun(stream)
                    assert b"content-type: text/event-stream" in head.lower()
                assert (await control.get("/v1/events")).json()["code"] == "too-many-feeds"
            while True:  # the proxy sees a hang-up when it writes next
                async with await trio.open_unix_socket(where) as stream:
                    if b" 200 " in await begun(stream):
                        break


async def begun(stream: trio.SocketStream) -> bytes:
    """Ask for the feed, and return what comes until both events have, or the answer is a problem."""
    await stream.send_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
    found = b""
    while b" 503 " not in found and not (b"event: state" in found and b"event: hour" in found):
        found += await stream.receive_some()
    return found


# ---- what it shows ----


@needs_chromium
async def test_the_page_shows_every_process_that_shares_limits(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider, browser: Chromium
) -> None:
    path = tmp_path / "team.hmp"
    path.write_text(f'hmp 1\nprovider sim {{ api generic; base "{provider.url}"; concurrency 4 }}\n')
    env = {**runtime, "XDG_STATE_HOME": str(tmp_path / "state")}
    with trio.fail_after(3 * PATIENCE_S):
        async with serving("--policy", path, "--workers", "2", env=env):
            await browser.open(await link(runtime))
            await browser.until("document.querySelectorAll('#nodes-rows tr').length == 2")
            assert [text.split()[0] for text in await browser.texts("#nodes-rows th")] == ["worker-1", "worker-2"]
            assert "2 of 2 alive" in await browser.text("#nodes-sum")
            shares = await browser.texts("#nodes-rows td[data-label=share]")
            assert 0 < sum(map(int, shares)) <= 4


async def call(proxy: Proxy, agent: str, model: str = "quick", **headers: str) -> str:
    async with httpx2.AsyncClient(base_url=proxy.url, timeout=PATIENCE_S) as client:
        body = {**BODY, "model": model}
        answer = await client.post(f"/@{agent}/v1/messages", json=body, headers=headers)
    return answer.headers["x-hivemind-call"]


def advice_of(control: httpx2.AsyncClient) -> Callable[[], Awaitable[Any]]:
    """Ask for the advice, which a process of its own computes."""

    async def ask() -> Any:
        return (await control.get("/v1/advice")).json()

    return ask


FIGURES: Final = ("waiting", "inflight", "failed", "rate")

READY: Final = "document.querySelector('#figure-waiting') && document.querySelector('#figure-cost')"


@needs_chromium
async def test_every_number_is_that_of_the_control_api_and_nothing_is_asked_of_others(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider, port: int, browser: Chromium
) -> None:
    with trio.fail_after(3 * PATIENCE_S):
        async with served(tmp_path, provider, runtime, port) as proxy:
            ended = await call(proxy, LONG, **{"x-hivemind-job": NASTY, "user-agent": NASTY})
            async with occupied(proxy, provider, 4) as control:
                await browser.open("about:blank")  # the page of a test before still looks for its proxy
                await browser.requested()
                await browser.complaints()
                await browser.open(await link(runtime))
                await browser.until(f"{READY} && document.querySelectorAll('#who-rows tr').length")
                status = (await control.get("/v1/status")).json()
                queue = (await control.get("/v1/queue")).json()["queue"]
                usage = (await control.get("/v1/usage")).json()
                budgets = (await control.get("/v1/budgets")).json()["budgets"]

                figures = {
                    name: await browser.text(f"#figure-{name}") for name in ("waiting", "inflight", "failed", "rate")
                }
                assert figures == {
                    "waiting": str(status["waiting"]),
                    "inflight": str(status["inflight"]),
                    "failed": str(status["calls"]["failed"]),
                    "rate": str(status["calls"]["per_min"]),
                }
                assert (status["waiting"], status["inflight"]) == (3, 1)
                assert await browser.texts("#waits-rows th") == [row["lane"] for row in queue]
                assert await browser.texts("#waits-rows .count") == [str(row["n"]) for row in queue]
                lanes = [[lane["name"], str(lane["waiting"]), str(lane["inflight"])] for lane in status["lanes"]]
                cells = await browser.texts("#lanes-rows th, #lanes-rows .num")
                assert cells == [cell for lane in lanes for cell in lane]
                limits = await browser.texts("#binds .limit p:first-child")
                assert "1 of 1" in limits[0]
                assert str(budgets[0]["spent"]) in limits[-1]
                assert await browser.texts("#calls-rows code") == [ended]
                (session,) = (await control.get("/v1/sessions")).json()["sessions"]
                assert session["session"] == NASTY
                cells = await browser.texts("#sessions-rows th, #sessions-rows td")
                window = session["window"]
                share = f" of {window}, {session['context'] * 100 // window}%" if window is not None else ""
                assert cells[:5] == [NASTY, session["agent"], session["model"], "1", f"{session['context']}{share}"]
                advice = await eventually(advice_of(control), lambda now: "too few to simulate" in now["text"])
                await browser.until(f"document.querySelector('#change-text').innerText.includes({advice['text']!r})")
                agents = [agent for team in usage["teams"] for agent in team["agents"]]
                counted = await browser.texts("#who-rows .level-1 td:nth-child(2)")
                assert counted == [str(agent["usage"]["calls"]) for agent in agents]

                asked_for = [url for url in await browser.requested() if not url.startswith("data:")]
                assert asked_for
                assert all(url.startswith(f"http://127.0.0.1:{port}/") for url in asked_for)
                assert await browser.complaints() == []
                assert await browser.script("return document.images.length") == 0
                assert "owned" not in await browser.script("return document.title")


@needs_chromium
async def test_it_fits_narrow_screens_and_can_be_read_in_both_schemes(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider, port: int, browser: Chromium
) -> None:
    with trio.fail_after(3 * PATIENCE_S):
        async with served(tmp_path, provider, runtime, port, POLICY.replace("slow", "interactive")) as proxy:
            await call(proxy, LONG, "claude-haiku-4-5", **{"x-hivemind-job": LONG})
            async with occupied(proxy, provider, 2):
                pass  # a call that has waited, with its reason, in a lane whose name is one long word
            async with occupied(proxy, provider, 3):
                await browser.open(await link(runtime))
                await browser.until(READY)
                await browser.until("document.querySelector('#sessions-rows svg')")
                for scheme in ("dark", "light"):
                    await browser.scheme(scheme)
                    assert await browser.script(CONTRAST) == []
                await browser.until("document.querySelector('#calls-rows').innerText.includes('concurrency')")
                for width in (320, 400, 768, 860, 901, 1024, 1440):
                    await browser.size(width)
                    await browser.until(f"document.documentElement.scrollWidth <= {width}")
                    heights = await browser.script(
                        "return [...document.querySelectorAll('svg.bar')].map((one) => one.clientHeight)"
                    )
                    assert set(heights) == {8}


@needs_chromium
async def test_invented_names_do_not_fill_the_page(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider, port: int, browser: Chromium
) -> None:
    with trio.fail_after(3 * PATIENCE_S):
        async with served(tmp_path, provider, runtime, port) as proxy:
            for number in range(53):
                await call(proxy, f"invented-{number}")
            await browser.open(await link(runtime))
            await browser.until(f"{READY} && document.querySelectorAll('#who-rows .level-1').length")

            assert await browser.script("return document.querySelectorAll('#who-rows .level-1').length") == 50
            assert await browser.text("#who-more") == "3 further rows: hivemind-trio usage --by agent"


@needs_chromium
async def test_operators_act_by_keyboard_and_a_wrong_key_does_nothing(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider, port: int, browser: Chromium
) -> None:
    with trio.fail_after(3 * PATIENCE_S):
        policy = POLICY.replace("concurrency 1", "concurrency 2").replace("lane slow {{", "lane slow {{ max 1;")
        async with (
            served(tmp_path, provider, runtime, port, policy) as proxy,
            occupied(proxy, provider, 2) as control,
        ):
            await browser.open(await link(runtime))
            await browser.until("document.querySelector('#waits-rows tr')")
            await browser.press("j")
            assert await browser.script("return document.activeElement.closest('tbody').id") == "waits-rows"
            await browser.press("l")
            await browser.until("document.querySelector('#confirm').open")
            assert "1" in await browser.text("#confirm-title")
            await browser.press("ENTER")

            async def inflight() -> int:
                found: int = (await control.get("/v1/status")).json()["inflight"]
                return found

            await eventually(inflight, lambda found: found == 2)  # beyond `max 1` of its lane
            await browser.press("/")
            await browser.press("p")
            assert await browser.script("return document.activeElement.id") == "search"
            assert not await browser.script("return document.querySelector('#confirm').open")
            await browser.press("ESCAPE")
            await browser.press("p")
            await browser.until("document.querySelector('#confirm').open")
            await browser.press("ENTER")
            await browser.until("document.querySelector('#notices').innerText.includes('paused')")
            assert [one["name"] for one in (await control.get("/v1/paused")).json()["paused"]] == ["sim"]
            assert await browser.texts("#notices code") == ["sim", "hivemind-trio resume provider sim"]
            assert "`" not in await browser.text("#notices")
            await browser.press("p")
            await browser.until("!document.querySelector('#notices').innerText.includes('paused')")


@needs_chromium
async def test_a_call_has_its_story_and_a_policy_its_text(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider, port: int, browser: Chromium
) -> None:
    with trio.fail_after(3 * PATIENCE_S):
        async with served(tmp_path, provider, runtime, port) as proxy:
            ended = await call(proxy, "ci")
            async with occupied(proxy, provider, 2):
                await browser.open(await link(runtime))
                await browser.until("document.querySelector('#calls-rows a')")
                await browser.click("#calls-rows a")
                await browser.until("document.querySelector('.story')")
                assert ended in await browser.text(".title-name")
                assert "Attempt 1: succeeded" in await browser.text(".story")
                await browser.script("location.hash = '#/'")
                await browser.until("document.querySelector('#waits-rows tr')")
                waiting = (await found(runtime, "calls", "--state", "waiting"))["calls"][0]["id"]
                await browser.script(f"location.hash = '#/calls/{waiting}'")
                await browser.until("document.querySelector('.title .wait')")
                await browser.click("a[href*='team.hmp']")
                await browser.until("document.querySelector('.here')")
                assert "agent ci" in await browser.text(".here")


@needs_chromium
async def test_a_provider_has_a_page_with_its_limits_and_who_holds_them(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider, port: int, browser: Chromium
) -> None:
    policy = POLICY.replace("concurrency 1", "concurrency 1; limits {{ requests 50/min }}")
    with trio.fail_after(3 * PATIENCE_S):
        async with (
            served(tmp_path, provider, runtime, port, policy) as proxy,
            occupied(proxy, provider, 3) as control,
        ):
            await browser.open("about:blank")  # the page of a proxy that has ended complains until then
            await browser.complaints()
            await browser.open(await link(runtime))
            await browser.until("document.querySelector('#binds h3 a')")
            await browser.click("#binds h3 a")
            await browser.until("document.querySelector('#provider-hold-rows code')")
            holding = (await control.get("/v1/calls", params={"state": "inflight"})).json()["calls"]
            (status,) = (await control.get("/v1/status")).json()["providers"]
            (row,) = (await control.get("/v1/queue")).json()["queue"]

            assert await browser.texts("#provider-hold-rows code") == [call["id"] for call in holding]
            assert await browser.text("#provider-title .tag") == f"circuit {status['circuit']}"
            await browser.until("document.querySelector('#provider-limit-rows').innerText.includes('any kind')")
            cells = await browser.texts("#provider-limit-rows .num")
            used = [(one["used"], one["limit"], 0) for one in status["limits"]]
            of_all = [(status["inflight"], status["limit"], ""), *used]
            assert cells == [str(number) for row_of in of_all for number in row_of]
            assert await browser.texts("#provider-wait-rows .num") == [str(row["n"])]
            assert await browser.script("return document.querySelectorAll('#provider-hour canvas').length") == 3
            for width in (320, 1440):
                await browser.size(width)
                await browser.until(f"document.documentElement.scrollWidth <= {width}")
            assert await browser.script(CONTRAST) == []
            assert await browser.complaints() == []
            await browser.script("location.hash = '#/providers/nobody'")
            await browser.until("document.querySelector('#provider-lede').innerText.includes('no such provider')")
            await browser.script("location.hash = '#/'")
            await browser.until(READY)


@needs_chromium
async def test_a_providers_page_has_beliefs_models_and_circuit_as_the_control_api_has_them(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider, port: int, browser: Chromium
) -> None:
    settings = "concurrency 2; retry once; breaker trip 50% of 4 over 60s open 1s probes 1"
    policy = POLICY.replace("concurrency 1", settings) + "retry once {{ attempts 1 }}\n"
    with trio.fail_after(3 * PATIENCE_S):
        async with served(tmp_path, provider, runtime, port, policy) as proxy, asked(proxy) as control:

            async def detail() -> Any:
                return (await control.get("/v1/providers/sim")).json()

            provider.replies.append(ScriptedReply(status=429, headers=[(b"retry-after", b"1")]))
            await call(proxy, "ci")
            provider.replies.extend([ScriptedReply(status=500)] * 3)
            while (await detail())["provider"]["circuit"] == "closed":
                await call(proxy, "ci")
            provider.replies.clear()
            gate = trio.Event()
            provider.replies.append(ScriptedReply(hold=gate))
            async with trio.open_nursery() as calls:
                calls.start_soon(call, proxy, "ci")
                await eventually(detail, lambda now: now["provider"]["inflight"] == 1)
                await trio.sleep(0.8)  # its first byte comes so late
                gate.set()
            known = await eventually(detail, lambda now: now["provider"]["circuit"] == "closed")

            (model,) = known["models"]
            numbers = [str(model[name]) for name in ("inflight", "attempts", "refused", "failed")]
            assert (model["model"], numbers[:1], numbers[2]) == ("quick", ["0"], "1")
            assert model["attempts"] == len(provider.seen)
            assert [turn["circuit"] for turn in known["circuit"]][:3] == ["open", "half-open", "closed"]
            (gate,) = known["gates"]
            await browser.size(1440)
            await browser.open(await link(runtime))
            await browser.until(READY)
            await browser.script("location.hash = '#/providers/sim'")
            await browser.until("document.querySelector('#provider-turn-rows tr')")
            assert (await browser.texts("#provider-model-rows th, #provider-model-rows .num"))[:5] == [
                "quick",
                *numbers,
            ]
            cells = await browser.texts("#provider-model-rows .num")
            assert cells[4:7] == [str(model[name]) for name in ("tokens_in", "cached", "tokens_out")]
            assert model["begun"] >= 1
            assert cells[7] == f"{model['first_byte_s']:.1f} s" != "0.0 s"
            shown = [tag.strip() for tag in await browser.texts("#provider-turn-rows .tag")]
            assert shown == [turn["circuit"] for turn in reversed(known["circuit"])]
            why = await browser.texts("#provider-turn-rows td[data-label=because]")
            assert why == [turn["because"] or "its pause is over" for turn in reversed(known["circuit"])]
            beliefs = await browser.texts("#provider-belief-rows .num")
            assert beliefs[:4] == [
                "" if number is None else str(number)
                for number in (gate["inflight"], gate["allowed"], gate["rate_per_s"], gate["probes_refused"])
            ]
            for width in (320, 1440):
                await browser.size(width)
                await browser.until(f"document.documentElement.scrollWidth <= {width}")
            assert await browser.script(CONTRAST) == []


@needs_chromium
async def test_a_lost_connection_is_said_and_found_again(
    tmp_path: Path, runtime: dict[str, str], provider: SimulatedProvider, port: int, browser: Chromium
) -> None:
    with trio.fail_after(3 * PATIENCE_S):
        async with served(tmp_path, provider, runtime, port) as proxy:
            await browser.open(await link(runtime))
            await browser.until(f"{READY} && document.querySelector('#live-text').innerText.startsWith('live')")
            proxy.signal(signal.SIGKILL)
            await browser.until("!document.querySelector('#banner').hidden")
            assert "next try in" in await browser.text("#banner")
            assert await browser.script("return document.querySelector('#pause-all').disabled")
            await browser.size(400)
            await browser.script("window.scrollTo(0, document.body.scrollHeight)")
            await browser.until("window.scrollY > 400")
            top = "document.querySelector('#banner').getBoundingClientRect().top"
            assert 0 <= await browser.script(f"return {top}") < await browser.script("return window.innerHeight")
            await browser.size(1440)
        async with served(tmp_path, provider, runtime, port) as proxy, occupied(proxy, provider, 3):
            await browser.until("document.querySelector('#banner').hidden")
            await browser.until("document.querySelector('#figure-waiting').innerText === '2'")
            assert await browser.texts("#waits-rows .count") == ["2"]
