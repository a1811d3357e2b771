"""HTTP/2 by prior knowledge, and WebSocket: Hypercorn's protocols with our mendings."""

from __future__ import annotations

from collections import defaultdict

import attrs
import h2.config
import h2.connection
import h2.errors
import h2.events
import pytest
import trio
import trio.testing
from hypercorn.events import Event, RawData
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.listen import Bounds, Receive, Scope, Send
from hivemind_trio.listen.http2 import Http2
from hivemind_trio.listen.http2_frames import SLICE_WORK, FrameCutter

from .corpus import upgrade
from .house import House, body_of, echoes, listens, refuses, respond, serving

S = 10**9
FIELDS = [(b":method", b"POST"), (b":path", b"/a?b"), (b":authority", b"x"), (b":scheme", b"http")]


@attrs.define(eq=False)
class Http2Client:
    stream: trio.SocketStream
    h2: h2.connection.H2Connection
    status: dict[int, bytes] = attrs.field(factory=dict)
    headers: dict[int, list[tuple[bytes, bytes]]] = attrs.field(factory=dict)
    body: defaultdict[int, bytes] = attrs.field(factory=lambda: defaultdict(bytes))
    ended: set[int] = attrs.field(factory=set)
    reset: dict[int, int] = attrs.field(factory=dict)
    acknowledges: bool = True

    @classmethod
    async def of(cls, house: House) -> Http2Client:
        client = cls(
            (await house.client()).stream,
            h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None)),
        )
        client.h2.initiate_connection()
        await client.flush()
        return client

    async def flush(self) -> None:
        await self.stream.send_all(self.h2.data_to_send())

    async def ask(self, body: bytes | None = None, end: bool = True) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream_id, FIELDS, end_stream=body is None and end)
        if body is not None:
            self.h2.send_data(stream_id, body, end_stream=end)
        await self.flush()
        return stream_id

    async def until(self, *stream_ids: int) -> None:
        while not self.ended.issuperset(stream_ids):
            await self.hear()

    async def hear(self) -> None:
        data = bytes(await self.stream.receive_some())
        assert data, "the connection has ended"
        for event in self.h2.receive_data(data):
            match event:
                case h2.events.ResponseReceived():
                    self.status[event.stream_id] = dict(event.headers)[b":status"]
                    self.headers[event.stream_id] = list(event.headers)
                case h2.events.DataReceived():
                    self.body[event.stream_id] += event.data
                    if self.acknowledges:
                        self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case h2.events.StreamReset():
                    self.reset[event.stream_id] = int(event.error_code)
                    self.ended.add(event.stream_id)
                case h2.events.StreamEnded():
                    self.ended.add(event.stream_id)
        await self.flush()


async def test_streams_of_one_connection_are_answered_side_by_side() -> None:
    async with serving(echoes) as house:
        client = await Http2Client.of(house)

        ids = [await client.ask(b"%d" % n) for n in range(10)]
        await client.until(*ids)

        assert [client.body[stream_id] for stream_id in ids] == [b"%d" % n for n in range(10)]
        assert client.headers[1] == [(b":status", b"200"), (b"content-length", b"1")]
        assert house.listener.connections == 1


async def test_a_body_longer_than_the_window_arrives_whole() -> None:
    body = bytes(range(256)) * 2_000

    async with serving(echoes) as house:
        client = await Http2Client.of(house)
        stream_id = await client.ask(end=False)
        rest = body
        while rest:
            room = min(client.h2.local_flow_control_window(stream_id), client.h2.max_outbound_frame_size, len(rest))
            if room:
                client.h2.send_data(stream_id, rest[:room], end_stream=room == len(rest))
                rest = rest[room:]
                await client.flush()
            else:
                await client.hear()
        await client.until(stream_id)

        assert client.body[stream_id] == body


async def test_a_stream_whose_app_does_not_read_is_bounded_and_does_not_stop_the_others() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["headers"][-1] == (b"deaf", b"1"):
            await trio.sleep_forever()
        await echoes(scope, receive, send)

    async with serving(app) as house:
        client = await Http2Client.of(house)
        await client.ask()  # learns of the windows
        await client.until(1)
        deaf = []
        for _ in range(3):
            stream_id = client.h2.get_next_available_stream_id()
            client.h2.send_headers(stream_id, [*FIELDS, (b"deaf", b"1")])
            while room := min(client.h2.local_flow_control_window(stream_id), client.h2.max_outbound_frame_size):
                client.h2.send_data(stream_id, b"x" * room)
            await client.flush()
            deaf.append(stream_id)

        alive = await client.ask(b"still")
        await client.until(alive)

        assert client.body[alive] == b"still"
        assert [client.h2.local_flow_control_window(stream_id) for stream_id in deaf] == [0, 0, 0]


async def test_data_after_an_early_answer_is_dropped_and_its_connection_lives() -> None:
    async with serving(refuses, Bounds(linger_bytes=50_000)) as house:
        client = await Http2Client.of(house)
        early = await client.ask(b"x", end=False)
        await client.until(early)
        assert client.status[early] == b"429"

        for _ in range(4):
            client.h2.send_data(early, b"x" * 10_000)
        await client.flush()
        later = await client.ask()
        await client.until(later)
        assert client.status[later] == b"429"
        assert early not in client.reset

        client.h2.send_data(early, b"x" * 10_001)
        await client.flush()
        while early not in client.reset:
            await client.hear()
        assert client.reset[early] == 0  # NO_ERROR: we have said all, stop
        assert not house.reports


async def test_a_websocket_app_whose_handshake_went_wrong_hears_of_it_in_its_own_words(clock: trio.abc.Clock) -> None:
    heard: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(3):
            heard.append((await receive())["type"])

    async with serving(app) as house:
        client = await house.client()
        await client.say(upgrade() + b"too early")
        await house.emptied()

        assert heard == ["websocket.connect", "websocket.disconnect", "websocket.disconnect"]


@pytest.mark.parametrize("how", ["abort", "raise", "return"])
async def test_half_an_answer_is_reset_and_the_neighbours_live(how: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if await body_of(receive) == b"whole":
            await respond(send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        if how == "abort":
            scope["extensions"]["hivemind.abort"]()
            await send({"type": "http.response.body"})
        elif how == "raise":
            raise ValueError("the app's bug")

    async with serving(app) as house:
        client = await Http2Client.of(house)
        half, whole = await client.ask(b"half"), await client.ask(b"whole")
        await client.until(half, whole)

        assert client.reset == {half: 2}
        assert client.body[whole] == b"ok"
        assert len(house.reports) == (how == "raise")


async def test_what_was_said_before_an_answer_broke_off_arrives_and_the_connection_rests() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if await body_of(receive) == b"whole":
            await respond(send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await send({"type": "http.response.body", "body": b", and why", "more_body": True})
        scope["extensions"]["hivemind.abort"]()

    async with serving(app) as house:
        client = await Http2Client.of(house)
        half = await client.ask(b"half")
        await client.until(half)
        whole = await client.ask(b"whole")
        await client.until(whole)
        broken = await client.ask(b"half")
        await client.until(broken)

        assert client.reset == {half: 2, broken: 2}
        assert (client.body[half], client.body[whole], client.body[broken]) == (
            b"half, and why", b"ok", b"half, and why",
        )  # fmt: skip
        house.listener.stop_accepting()
        await house.emptied()


async def test_a_client_that_takes_nothing_has_its_answer_broken_off_all_the_same(clock: trio.abc.Clock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"x" * 30_000, "more_body": True})
        scope["extensions"]["hivemind.abort"]()

    async with serving(app) as house:
        client = await Http2Client.of(house)
        client.acknowledges = False
        stream_id = await client.ask()
        await client.until(stream_id)

        assert client.reset == {stream_id: 2}
        assert len(client.body[stream_id]) < 90_000


async def test_a_reset_by_the_client_is_a_hang_up_of_that_stream_only() -> None:
    calls: list[bytes] = []
    told, begun = trio.Event(), trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await body_of(receive) or b""
        scope["extensions"]["hivemind.on_disconnect"](lambda: calls.append(body))
        begun.set()
        assert (await receive())["type"] == "http.disconnect"
        told.set()

    async with serving(app) as house:
        client = await Http2Client.of(house)
        first = await client.ask(b"first")
        await begun.wait()
        await client.ask(b"second")
        client.h2.reset_stream(first)
        await client.flush()
        await told.wait()
        await trio.testing.wait_all_tasks_blocked(0.01)

        assert calls == [b"first"]


@pytest.mark.parametrize("stop", ["reading the socket", "opening the window"])
async def test_a_client_that_takes_nothing_loses_its_answer_in_time(stop: str, clock: trio.abc.Clock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with trio.CancelScope() as attempt:
            scope["extensions"]["hivemind.on_disconnect"](attempt.cancel)
            for _ in range(1_000):
                await send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": True})
                taken.append(50_000)

    taken: list[int] = []
    async with serving(app, Bounds(write_patience_ns=10 * S)) as house:
        client = await Http2Client.of(house)
        if stop == "opening the window":
            client.acknowledges = False
        else:
            client.h2.increment_flow_control_window(2**30)
            client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2**30})
        stream_id = await client.ask()

        if stop == "opening the window":
            await client.until(stream_id)
            assert client.reset == {stream_id: 2}
            assert len(taken) < 1_000
        else:
            await house.emptied()


async def test_a_body_that_stands_still_is_a_hang_up(clock: trio.abc.Clock) -> None:
    bodies: list[bytes | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        bodies.append(await body_of(receive))

    async with serving(app, Bounds(body_idle_ns=10 * S)) as house:
        client = await Http2Client.of(house)
        await client.ask(b"x", end=False)
        await trio.sleep(11)

        assert bodies == [None]


# -- what frames may cost ------------------------------------------------------------


def resets(client: Http2Client, count: int) -> None:
    for _ in range(count):
        stream_id = client.h2.get_next_available_stream_id()
        client.h2.send_headers(stream_id, FIELDS)
        client.h2.reset_stream(stream_id)


async def calmed(client: Http2Client) -> int:
    """The error code of the GOAWAY that ends the connection."""
    code = -1
    while data := bytes(await client.stream.receive_some()):
        for event in client.h2.receive_data(data):
            if isinstance(event, h2.events.ConnectionTerminated):
                assert event.error_code is not None
                code = int(event.error_code)
    return code


async def test_a_burst_of_resets_is_served_and_a_longer_one_ends_the_connection(clock: trio.abc.Clock) -> None:
    begun: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["path"])
        await listens(scope, receive, send)

    async with serving(app, Bounds(resets=50)) as house:
        client = await Http2Client.of(house)
        resets(client, 45)
        await client.flush()
        await trio.sleep(5)  # half of the burst is back
        resets(client, 20)
        stream_id = await client.ask(b"x")
        while stream_id not in client.status:
            await client.hear()
        # What is taken back in the slice that asks for it is not begun; some pairs are split between two.
        assert len(begun) < 30

        resets(client, 60)
        house.nursery.start_soon(client.flush)

        assert await calmed(client) == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM
        await house.emptied()


async def test_resets_of_many_connections_count_together_and_the_innocent_stay(clock: trio.abc.Clock) -> None:
    async with serving(echoes, Bounds(resets=100, resets_in_all=150)) as house:
        innocent, *crowd = [await Http2Client.of(house) for _ in range(4)]
        for client in crowd:
            resets(client, 60)
            await client.flush()
            await trio.testing.wait_all_tasks_blocked(0.01)
        resets(innocent, 3)
        for client in (innocent, *crowd[:2]):
            stream_id = await client.ask(b"x")
            await client.until(stream_id)
            assert client.body[stream_id] == b"x"

        assert await calmed(crowd[2]) == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


PING = b"\0\0\x08\x06\0\0\0\0\0" + b"12345678"
SETTINGS = b"\0\0\x06\x04\0\0\0\0\0" + b"\0\x04\0\0\xff\xff"
EMPTY_DATA = b"\0\0\0\0\0\0\0\0\1"
PRIORITY = b"\0\0\x05\x02\0\0\0\0\1" + b"\0\0\0\0\x10"


@pytest.mark.parametrize("frame", [PING, SETTINGS, EMPTY_DATA, PRIORITY], ids=["PING", "SETTINGS", "DATA", "PRIORITY"])
async def test_frames_without_content_are_counted(frame: bytes, clock: trio.abc.Clock) -> None:
    async with serving(listens, Bounds(idle_frames=100)) as house:
        client = await Http2Client.of(house)
        await client.ask(b"x", end=False)
        await client.stream.send_all(frame * 90)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert house.listener.connections == 1

        house.nursery.start_soon(client.stream.send_all, frame * 90)

        assert await calmed(client) == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM
        await house.emptied()


async def test_streams_whose_apps_do_not_end_are_refused(clock: trio.abc.Clock) -> None:
    async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep_forever()

    async with serving(deaf, Bounds(streams=5)) as house:
        client = await Http2Client.of(house)
        for _ in range(10):
            stream_id = await client.ask(b"x")
            await trio.testing.wait_all_tasks_blocked(0.01)
            client.h2.reset_stream(stream_id)
            await client.flush()
            await trio.testing.wait_all_tasks_blocked(0.01)
        refused = await client.ask(b"x")
        await client.until(refused)

        assert client.reset == {refused: h2.errors.ErrorCodes.REFUSED_STREAM}


class Slices(trio.abc.Instrument):
    """How often HTTP/2 was handed bytes in each turn of the loop."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now, self.most, self.total = 0, 0, 0
        handle = Http2.handle

        async def counted(http2: Http2, event: Event) -> None:
            self.now += isinstance(event, RawData)
            await handle(http2, event)

        patch.setattr(Http2, "handle", counted)

    def before_io_wait(self, timeout: float) -> None:
        self.most, self.total, self.now = max(self.most, self.now), self.total + self.now, 0


async def test_in_a_turn_of_the_loop_one_connection_has_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = Slices(monkeypatch)

    async with serving(echoes) as house:
        crowd = [await Http2Client.of(house) for _ in range(5)]
        slices.now = 0
        trio.lowlevel.add_instrument(slices)
        for client in crowd:
            await client.stream.send_all(PING * 400)
        await trio.testing.wait_all_tasks_blocked(0.01)
        trio.lowlevel.remove_instrument(slices)

    assert slices.most == 1
    assert slices.total >= 5 * 400 / SLICE_WORK


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 4, 6, 9, 0xFF]), st.integers(0, 40)), max_size=60),
    st.lists(st.integers(1, 200), max_size=20),
)
def test_a_cutter_changes_no_byte_and_no_slice_begins_too_much(frames: list[tuple[int, int]], reads: list[int]) -> None:
    sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"".join(
        length.to_bytes(3) + bytes([kind]) + b"\0\0\0\0\1" + b"x" * length for kind, length in frames
    )
    cutter, slices, at = FrameCutter(), list[bytes](), 0
    for size in [*reads, len(sent)]:
        slices += cutter.cut(sent[at : at + size])
        at += size

    assert b"".join(slices) == sent
    heads, place = [], 24
    for kind, length in frames:
        heads.append((place + 8, 4 if kind in (1, 9) else 1))  # a frame has begun when all of its head is there
        place += 9 + length
    place = 0
    for piece in slices:
        begun = [cost for at, cost in heads if place <= at < place + len(piece)]
        assert sum(begun) <= SLICE_WORK
        place += len(piece)


async def test_the_connection_ends_when_it_has_rested(clock: trio.abc.Clock) -> None:
    async with serving(echoes, Bounds(keep_alive_ns=10 * S)) as house:
        client = await Http2Client.of(house)
        await client.until(await client.ask(b"x"))
        await trio.sleep(9)
        assert house.listener.connections == 1

        await house.emptied()


async def test_to_stop_accepting_ends_a_connection_with_its_last_stream() -> None:
    go = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        await respond(send)

    async with serving(app) as house:
        client = await Http2Client.of(house)
        stream_id = await client.ask()
        await trio.testing.wait_all_tasks_blocked(0.01)
        house.listener.stop_accepting()
        go.set()
        await client.until(stream_id)

        assert client.body[stream_id] == b"ok"
        await client.stream.send_all(client.h2.data_to_send())
        while await client.stream.receive_some():
            pass  # GOAWAY, then the end


async def test_a_websocket_handshake_reaches_the_app_which_may_refuse_it() -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await echoes(scope, receive, send)

    async with serving(app) as house:
        client = await house.client()
        await client.say(upgrade(path=b"/v1/realtime?model=m"))

        assert (await client.rest()).startswith(b"HTTP/1.1 403 ")
        assert scopes[0]["type"] == "websocket"
        assert scopes[0]["raw_path"] == b"/v1/realtime"


async def test_a_websocket_that_was_accepted_hears_of_its_clients_end(clock: trio.abc.Clock) -> None:
    async with serving(listens) as house:
        client = await house.client()
        await client.say(upgrade())
        assert (await client.raw()).startswith(b"HTTP/1.1 101 ")
        client.stream.socket.close()

        await house.emptied()
