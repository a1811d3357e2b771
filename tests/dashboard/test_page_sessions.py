"""Sessions of browsers: links that work once, cookies that end, and keys that are taken back."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.dashboard.page_sessions import COOKIE, LINK_S, LINKS_MAX, SESSION_S, PageSessions


@attrs.define
class World:
    """Sessions with a clock and tokens that a test sets."""

    now_s: float = 1_000_000.0
    tokens: tuple[str, ...] = ("alpha",)

    def sessions(self) -> PageSessions:
        return PageSessions(lambda: self.tokens, lambda: self.now_s)


def scope(cookie: str) -> dict[str, Any]:
    return {"headers": [(b"cookie", cookie.encode("latin-1"))]}


def signed_in(sessions: PageSessions) -> str:
    value = sessions.redeem(sessions.link())
    assert value is not None
    return f"other=1; {COOKIE}={value}"


def test_a_link_works_once() -> None:
    sessions = World().sessions()
    token = sessions.link()

    assert sessions.redeem(token) is not None
    assert sessions.redeem(token) is None
    assert sessions.redeem("") is None


def test_a_link_ends() -> None:
    world = World()
    sessions = world.sessions()
    token = sessions.link()
    world.now_s += LINK_S

    assert sessions.redeem(token) is None


def test_links_are_bounded_and_the_oldest_end_first() -> None:
    sessions = World().sessions()
    tokens = [sessions.link() for _ in range(LINKS_MAX + 1)]

    assert sessions.redeem(tokens[0]) is None
    assert sessions.redeem(tokens[1]) is not None


def test_a_session_survives_a_restart_and_ends_with_its_time_and_with_its_token() -> None:
    world = World(tokens=("alpha", "beta"))
    cookie = signed_in(world.sessions())
    again = world.sessions()

    assert again.is_signed_in(scope(cookie))
    world.tokens = ("beta", "alpha")
    assert again.is_signed_in(scope(cookie))
    world.now_s += SESSION_S
    assert not again.is_signed_in(scope(cookie))
    world.now_s -= SESSION_S
    world.tokens = ("beta",)
    assert not again.is_signed_in(scope(cookie))


def test_without_an_admin_token_a_session_ends_with_the_process() -> None:
    world = World(tokens=())
    sessions = world.sessions()
    cookie = signed_in(sessions)

    assert sessions.is_signed_in(scope(cookie))
    assert not world.sessions().is_signed_in(scope(cookie))


@given(st.integers(0, 200), st.integers(0, 255))
def test_no_changed_cookie_opens(at: int, byte: int) -> None:
    sessions = World().sessions()
    cookie = signed_in(sessions)
    at = cookie.index(COOKIE) + len(COOKIE) + 1 + at % (len(cookie) - cookie.index(COOKIE) - len(COOKIE) - 1)
    changed = cookie[:at] + chr(byte) + cookie[at + 1 :]

    # White space and what ends a value may be trimmed: then it is not the same cookie any more, or the very same.
    assert not sessions.is_signed_in(scope(changed)) or changed == cookie


@pytest.mark.parametrize("cookie", ["", COOKIE, f"{COOKIE}=", f"{COOKIE}=99999999999.", "\x00=\xff", f"{COOKIE}=²."])
def test_what_is_no_session_opens_nothing(cookie: str) -> None:
    assert not World().sessions().is_signed_in(scope(cookie))
