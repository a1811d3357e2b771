"""The address of a caller: of its connection, or as a proxy says it that the policy believes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.admin import AskingAgent
from hivemind_trio.model import Request
from hivemind_trio.model.addresses import LOOPBACK, address_number, address_text, network_span
from hivemind_trio.proxy.request.asker import Asker, asker_of
from hivemind_trio.proxy.request.caller_identity import Tokens
from hivemind_trio.proxy.request.client_address import client_address
from hivemind_trio.proxy.request.head import RequestHead
from tests.support.policies import compiled

PROXIES = tuple(span for text in ("10.0.0.0/8", "fd00::/8") if (span := network_span(text)) is not None)

X, F = b"X-Forwarded-For", b"forwarded"

SEEN = [
    ("192.0.2.7", [], "192.0.2.7"),
    ("192.0.2.7", [(X, b"203.0.113.9")], "192.0.2.7"),  # anyone may say so
    ("10.0.0.2", [], "10.0.0.2"),
    ("::ffff:10.0.0.2", [(X, b"203.0.113.9")], "203.0.113.9"),
    ("10.0.0.2", [(X, b"203.0.113.9")], "203.0.113.9"),
    ("10.0.0.2", [(X, b"1.1.1.1, 203.0.113.9 ,10.3.3.3")], "203.0.113.9"),  # the first one is the caller's own word
    ("10.0.0.2", [(X, b"1.1.1.1"), (b"x-forwarded-for", b"203.0.113.9")], "203.0.113.9"),
    ("10.0.0.2", [(X, b"10.1.1.1, 10.2.2.2")], "10.1.1.1"),
    ("10.0.0.2", [(X, b"203.0.113.9, unknown")], "10.0.0.2"),
    ("10.0.0.2", [(X, b"")], "10.0.0.2"),
    ("10.0.0.2", [(X, b"203.0.113.9:4711")], "203.0.113.9"),
    ("fd00::2", [(X, b"[2001:db8::1]:4711")], "2001:db8::1"),
    ("10.0.0.2", [(F, b'for=1.1.1.1;proto=https, For="[2001:db8::1]:4711"')], "2001:db8::1"),
    ("10.0.0.2", [(F, b"for=203.0.113.9"), (X, b"203.0.113.9")], "203.0.113.9"),
    ("fe80::1%eth0", [], "fe80::1"),
]


@pytest.mark.parametrize(("peer", "headers", "expected"), SEEN)
def test_the_last_address_that_is_no_proxys_counts(
    peer: str, headers: list[tuple[bytes, bytes]], expected: str
) -> None:
    found = client_address((peer, 4711), headers, PROXIES)

    assert found is not None
    assert address_text(found) == expected


@pytest.mark.parametrize("own", [b"for=10.1.1.1", b"for=unknown", b"for=", b'for="', b"for=1.1.1.1"])
def test_a_caller_is_nowhere_whose_own_header_differs_from_that_of_its_proxy(own: bytes) -> None:
    """Otherwise the call would have the proxy's address, inside every network that the proxy is in."""
    assert client_address(("10.0.0.2", 4711), [(F, own), (X, b"203.0.113.9")], PROXIES) is None


def test_a_caller_of_a_unix_socket_is_this_machine() -> None:
    assert client_address(None, [(X, b"203.0.113.9")], PROXIES) == LOOPBACK


@given(said=st.lists(st.binary(max_size=30) | st.sampled_from([b"10.0.0.1", b"for=::1", b"\"[::1"]), max_size=4),
       name=st.sampled_from([X, F]))  # fmt: skip
def test_whatever_a_header_says_there_is_an_address(said: list[bytes], name: bytes) -> None:
    number = client_address(("10.0.0.2", 1), [(name, value) for value in said], PROXIES)

    assert number is not None
    assert address_number(address_text(number)) == number


@given(forged=st.lists(st.ip_addresses().map(str), max_size=3), name=st.sampled_from([X, F]))
def test_what_a_caller_says_itself_does_not_count(forged: list[str], name: bytes) -> None:
    """A proxy adds its caller's address at the end."""
    sign = "for=" if name == F else ""
    said = ", ".join(f'{sign}"{one}"' if sign else one for one in [*forged, "203.0.113.9"])

    assert client_address(("10.0.0.2", 1), [(name, said.encode())], PROXIES) == address_number("203.0.113.9")


@given(number=st.integers(0, 2**128 - 1))
def test_an_address_is_read_as_it_is_shown(number: int) -> None:
    assert address_number(address_text(number)) == number


@pytest.mark.parametrize(("header", "agent", "address"), [(b"203.0.113.9", "outside", "203.0.113.9"), (b"", "", "")])
def test_an_agent_that_asks_for_its_turn_is_counted_by_the_address_of_its_calls(
    header: bytes, agent: str, address: str
) -> None:
    program = compiled(
        'server { forwarded-by "10.0.0.0/8" }\nprovider p { api anthropic; base "http://127.0.0.1:9"; key env(K) }\n'
        'agent outside when not client.address in "10.0.0.0/8" { }'
    )
    headers = [(b"host", b"127.0.0.1:1"), *([(X, header)] if header else [])]
    scope = {"method": "POST", "path": "/mcp", "query_string": b"", "headers": headers, "client": ("10.0.0.2", 4711)}
    head = RequestHead.of(scope)
    asker = asker_of(head, program, Tokens(program, {}), b"key")

    assert isinstance(asker, Asker)
    asking = AskingAgent.at_the_door(asker)  # as which it forecasts its calls
    assert asking.address == (address or "10.0.0.2")
    assert program.decide(Request(client_address=asking.client_address)).agent == (agent or "unknown")
