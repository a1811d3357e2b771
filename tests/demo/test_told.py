"""What the virtual world takes a head for is what the provider behind a socket sends, read by the proxy's reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.demo.rate_limit_headers import anthropic, azure, openai
from hivemind_trio.model import Api
from hivemind_trio.sim import Metered, Reading
from hivemind_trio.sim.provider.wire_format import told
from hivemind_trio.wire import read_ratelimits

SECOND = 1_000_000_000

readings = st.dictionaries(
    st.sampled_from(Metered),
    st.integers(1, 10**6).flatmap(
        lambda limit: st.builds(
            Reading, limit=st.just(limit), remaining=st.integers(0, limit), full_ns=st.integers(0, 60 * SECOND)
        )
    ),
)


@pytest.mark.slow
@given(readings, st.integers(0, 10**13))
def test_the_world_hears_what_anthropic_s_headers_say(given: dict[Metered, Reading], now_ns: int) -> None:
    now_ns -= now_ns % 1_000  # its clock is a datetime, which knows no less
    headers = {name.decode(): value.decode() for name, value in anthropic(given, now_ns)}

    assert set(told(Api.ANTHROPIC, given, now_ns)) == set(read_ratelimits(headers))


@pytest.mark.slow
@given(readings, st.integers(0, 10**13))
def test_the_world_hears_what_openai_s_headers_say(given: dict[Metered, Reading], now_ns: int) -> None:
    headers = {name.decode(): value.decode() for name, value in openai(given, now_ns)}

    assert set(told(Api.OPENAI, given, now_ns)) == set(read_ratelimits(headers))


@pytest.mark.slow
@given(readings, st.integers(0, 10**13))
def test_the_world_hears_what_azure_s_headers_say(given: dict[Metered, Reading], now_ns: int) -> None:
    headers = {name.decode(): value.decode() for name, value in azure(given, now_ns)}

    assert set(told(Api.AZURE, given, now_ns)) == set(read_ratelimits(headers))
