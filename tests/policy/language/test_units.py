"""Every amount has one spelling: which are read, exactly as what, and what is said of the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN, Decimal, localcontext
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.policy import MemoryFiles, check
from hivemind_trio.policy.language.units import (
    ALLOWANCE_WINDOWS,
    UnitError,
    count,
    duration_ns,
    money_microusd,
    multiple,
    price_per,
    ratio,
    size_bytes,
    window_ns,
)
from hivemind_trio.policy.language.values import parse_address
from hivemind_trio.policy.syntax.lexer import lexemes

MS, S = 10**6, 10**9
M, H, D = 60 * S, 3_600 * S, 86_400 * S
INT_MAX = 2**63 - 1

Read = Callable[[str], int | float]
READERS: dict[str, Read] = {
    "duration": duration_ns,
    "count": count,
    "size": size_bytes,
    "ratio": ratio,
    "multiple": multiple,
    "money": money_microusd,
}

ACCEPTED: dict[str, dict[str, int | float]] = {
    "duration": {
        "500ms": 500 * MS, "30s": 30 * S, "5m": 5 * M, "2h": 2 * H, "3d": 3 * D, "1w": 7 * D, "0s": 0,
        "1.5s": 1500 * MS,
        "0.5ms": 500_000, "0.000001ms": 1, "1h30m": H + 30 * M, "1w2d3h4m5s6ms": 9 * D + 3 * H + 4 * M + 5 * S + 6 * MS,
        "1m90s": M + 90 * S, "0h5m": 5 * M, "1_000ms": S, "007s": 7 * S,
    },
    "count": {
        "0": 0, "1": 1, "40k": 40_000, "1.5k": 1_500, "2M": 2 * 10**6, "1.5M": 1_500_000, "3G": 3 * 10**9,
        "40_000": 40_000, "4__0_": 40, "1.0": 1, "0.001k": 1, "9223372036854775807": INT_MAX, "007": 7,
    },
    "size": {
        "1B": 1, "64kB": 64_000, "10MB": 10**7, "1GB": 10**9, "64KiB": 65_536, "32MiB": 33_554_432, "1GiB": 1 << 30,
        "0.5KiB": 512, "0B": 0,
    },
    "ratio": {
        "50%": 0.5, "0%": 0.0, "100%": 1.0, "0.5": 0.5, "0": 0.0, "1": 1.0, "1.0": 1.0, "2.5%": 0.025, "0.1%": 0.001,
    },
    "multiple": {"4x": 4.0, "1.5x": 1.5, "0x": 0.0},
    "money": {
        "$25": 25_000_000, "$0.80": 800_000, "$4k": 4 * 10**9, "$1.5M": 1_500_000_000_000, "$0": 0, "$0.000001": 1,
        "$1_000": 10**9,
    },
}  # fmt: skip

REFUSED: dict[str, dict[str, tuple[str, str]]] = {
    "duration": {
        "30": ("HM203", "write `30s` or `30ms`"),
        "0": ("HM203", "write `0s` or `0ms`"),
        "30sec": ("HM202", "write `30s`"),
        "5min": ("HM202", "write `5m`"),
        "5M": ("HM202", "write `5m`"),
        "2hours": ("HM202", "write `2h`"),
        "2day": ("HM202", "write `2d`"),
        "20msec": ("HM202", "write `20ms`"),
        "1.5hr": ("HM202", "write `1.5h`"),
        "1y": ("HM202", "the units are `ms`, `s`, `m`, `h`, `d` or `w`"),
        "1us": ("HM202", "the units are `ms`, `s`, `m`, `h`, `d` or `w`"),
        "30m1h": ("HM202", "the largest unit comes first, each once: `1h30m`"),
        "1h1h": ("HM202", "the largest unit comes first, each once: `1h30m`"),
        "1h5x": ("HM202", "the largest unit comes first, each once: `1h30m`"),
        "1.5h30m": ("HM202", "the units are `ms`, `s`, `m`, `h`, `d` or `w`"),
        "50%": ("HM201", "write `30s`, `5m` or `1h30m`"),
        "$5": ("HM201", "write `30s`, `5m` or `1h30m`"),
        "0.0000001ms": ("HM207", ""),
        "0.0000015ms": ("HM207", ""),
        "292y": ("HM202", "the units are `ms`, `s`, `m`, `h`, `d` or `w`"),
        "106752d": ("HM207", ""),
    },
    "count": {
        "40K": ("HM202", "write `40k`"),
        "1m": ("HM202", "write `1M`"),
        "2B": ("HM202", "write `2G`"),
        "4s": ("HM202", "the units are `k`, `M` or `G`"),
        "4x": ("HM202", "the units are `k`, `M` or `G`"),
        "50%": ("HM201", "write `40` or `40k`"),
        "$4": ("HM201", "write `40` or `40k`"),
        "1.5": ("HM207", ""),
        "0.5": ("HM207", ""),
        "1.0001k": ("HM207", ""),
        "1.00000000000000000000000000001": ("HM207", ""),
        "9223372036854775808": ("HM207", ""),
        "9223372037G": ("HM207", ""),
    },
    "size": {
        "32": ("HM203", "write `32MiB` or `32kB`"),
        "10mb": ("HM202", "write `10MB`"),
        "10KB": ("HM202", "write `10kB`"),
        "10k": ("HM202", "write `10kB`"),
        "10mib": ("HM202", "write `10MiB`"),
        "1TB": ("HM202", "the units are `B`, `kB`, `MB`, `GB`, `KiB`, `MiB` or `GiB`"),
        "50%": ("HM201", "write `32MiB` or `64kB`"),
        "$1": ("HM201", "write `32MiB` or `64kB`"),
        "0.5B": ("HM207", ""),
        "1.5B": ("HM207", ""),
        "9000000000GiB": ("HM207", ""),
    },
    "ratio": {
        "101%": ("HM205", "write `100%` or less"),
        "1.01": ("HM205", "write `1.01%` or less"),
        "50": ("HM205", "write `50%` or less"),
        "500": ("HM205", "write `100%` or less"),
        "5s": ("HM201", "write `50%` or `0.5`"),
        "5%%": ("HM201", "write `50%` or `0.5`"),
        "$1": ("HM201", "write `50%` or `0.5`"),
    },
    "multiple": {
        "4": ("HM201", "write `4x`"),
        "4X": ("HM201", "write `4x`"),
        "$4": ("HM201", "write `4x`"),
        "4%": ("HM201", "write `4x`"),
    },
    "money": {
        "25": ("HM203", "write `$25`"),
        "4k": ("HM203", "write `$4k`"),
        "$4K": ("HM202", "write `$4k`"),
        "$4m": ("HM202", "write `$4M`"),
        "$5%": ("HM202", "the units are `k`, `M` or `G`"),
        "$0.0000001": ("HM207", ""),
        "$0.0000015": ("HM207", ""),
        "$9223372036855": ("HM207", ""),
    },
}


def refused(read: Callable[[], object]) -> UnitError:
    with pytest.raises(UnitError) as caught:
        read()
    assert caught.value.message
    return caught.value


def read_or_code(read: Read, text: str) -> tuple[float, str | None]:
    try:
        return read(text), None
    except UnitError as error:
        return 0, error.code


def cases(table: Mapping[str, Mapping[str, object]]) -> list[Any]:
    return [
        pytest.param(kind, text, wanted, id=f"{kind} {text}")
        for kind, rows in table.items()
        for text, wanted in rows.items()
    ]


@pytest.mark.parametrize(("kind", "text", "amount"), cases(ACCEPTED))
def test_an_amount_is_read_exactly(kind: str, text: str, amount: float) -> None:
    read = READERS[kind](text)

    assert read == amount
    assert type(read) is (float if kind in ("ratio", "multiple") else int)


@pytest.mark.parametrize(("kind", "text", "wanted"), cases(REFUSED))
def test_what_is_no_amount_of_its_kind_says_how_it_is_written(kind: str, text: str, wanted: tuple[str, str]) -> None:
    error = refused(lambda: READERS[kind](text))

    assert (error.code, error.help) == wanted
    assert text in error.message or error.code in ("HM202", "HM203")


@pytest.mark.parametrize(
    "text", sorted({text for table in (ACCEPTED, REFUSED) for rows in table.values() for text in rows})
)
def test_every_spelling_above_is_one_word_of_the_language(text: str) -> None:
    assert [piece.type for piece in lexemes(text, 0)] == ["QTY"]


WRITTEN = [(kind, text, wanted[1]) for kind, rows in REFUSED.items() for text, wanted in rows.items() if wanted[1]]


@pytest.mark.parametrize(("kind", "text", "help_"), WRITTEN, ids=[f"{kind} {text}" for kind, text, _ in WRITTEN])
def test_what_the_help_writes_is_read(kind: str, text: str, help_: str) -> None:
    if not help_.startswith("write "):
        return  # it lists the units

    for spelling in re.findall("`([^`]+)`", help_):
        READERS[kind](spelling)


@pytest.mark.parametrize(
    ("kind", "text"), [("duration", "30sec"), ("count", "40K"), ("size", "10mb"), ("money", "$4K")]
)
def test_an_edit_that_is_offered_mends_it(kind: str, text: str) -> None:
    replacement = refused(lambda: READERS[kind](text)).replacement

    assert replacement is not None
    READERS[kind](replacement)


# ---- windows and prices ----


@pytest.mark.parametrize(
    ("text", "quantity", "amount"),
    [
        ("s", False, S), ("min", False, M), ("hour", False, H), ("day", False, D), ("10m", True, 10 * M),
        ("1h30m", True, 90 * M),
    ],
)  # fmt: skip
def test_a_rate_is_per_a_unit_or_a_duration(text: str, quantity: bool, amount: int) -> None:
    assert window_ns(text, quantity=quantity) == amount


@pytest.mark.parametrize(
    ("text", "quantity", "code", "replacement"),
    [
        ("minute", False, "HM204", "min"), ("m", False, "HM204", "min"), ("h", False, "HM204", "hour"),
        ("sec", False, "HM204", "s"), ("d", False, "HM204", "day"), ("week", False, "HM204", "7d"),
        ("month", False, "HM204", "30d"),
        ("Min", False, "HM204", None), ("ms", False, "HM204", None), ("0s", True, "HM205", None),
        ("10", True, "HM203", None), ("10sec", True, "HM202", "10s"),
    ],
)  # fmt: skip
def test_another_window_is_refused(text: str, quantity: bool, code: str, replacement: str | None) -> None:
    error = refused(lambda: window_ns(text, quantity=quantity))

    assert (error.code, error.replacement) == (code, replacement)


@pytest.mark.parametrize(
    ("text", "amount"),
    [("week", 7 * 86_400 * 10**9), ("month", 31 * 86_400 * 10**9), ("day", 86_400 * 10**9)],
)
def test_an_allowance_is_per_week_or_month_too(text: str, amount: int) -> None:
    assert window_ns(text, quantity=False, windows=ALLOWANCE_WINDOWS) == amount


def test_a_price_is_per_a_thousand_or_a_million_tokens() -> None:
    assert (price_per("Mtok"), price_per("ktok")) == (10**6, 10**3)
    for text in ("tok", "mtok", "Ktok", "M", "min", "day"):
        assert refused(partial(price_per, text)).code == "HM204"


# ---- exact, bounded, total ----

NUMBERS = st.from_regex(r"[0-9]{1,20}(\.[0-9]{1,25})?", fullmatch=True)
INT_UNITS = {
    "duration": {"ms": MS, "s": S, "m": M, "h": H, "d": D, "w": 7 * D},
    "count": {"": 1, "k": 10**3, "M": 10**6, "G": 10**9},
    "size": {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30},
    "money": {"": 10**6, "k": 10**9, "M": 10**12, "G": 10**15},
}


@given(number=NUMBERS, data=st.data())
def test_an_amount_is_exact_or_it_is_refused(number: str, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(INT_UNITS)))
    unit = data.draw(st.sampled_from(sorted(INT_UNITS[kind])))
    text = f"{'$' if kind == 'money' else ''}{number}{unit}"
    with localcontext(prec=200):
        meant = Decimal(number) * INT_UNITS[kind][unit]
        whole = meant == meant.to_integral_value(ROUND_DOWN) and meant <= INT_MAX

    if whole:
        assert READERS[kind](text) == int(meant)
    else:
        assert refused(lambda: READERS[kind](text)).code == "HM207"


@given(st.permutations(["w", "d", "h", "m", "s", "ms"]), st.integers(2, 6), st.data())
def test_a_compound_is_the_sum_of_its_parts_if_the_largest_is_first(
    units: list[str], many: int, data: st.DataObject
) -> None:
    chosen = units[:many]
    parts = [(data.draw(st.integers(0, 99)), unit) for unit in chosen]
    text = "".join(f"{number}{unit}" for number, unit in parts)
    sizes = [INT_UNITS["duration"][unit] for unit in chosen]

    if sizes == sorted(sizes, reverse=True):
        assert duration_ns(text) == sum(number * INT_UNITS["duration"][unit] for number, unit in parts)
    else:
        assert refused(lambda: duration_ns(text)).code == "HM202"


@pytest.mark.slow
@given(st.from_regex(r"\$?[0-9][0-9_]*(\.[0-9]+)?([A-Za-z%]+([0-9]+[A-Za-z]+)*)?", fullmatch=True))
def test_whatever_the_language_calls_a_quantity_is_an_amount_or_an_error_with_a_code(text: str) -> None:
    for read in READERS.values():
        amount, code = read_or_code(read, text)
        assert code is None or re.fullmatch(r"HM20[1-7]", code)
        assert 0 <= amount < float("inf")
        assert not isinstance(amount, int) or amount <= INT_MAX


DIGITS = [65, 5_000, 1_100_000]
"""More than an amount has, than Python reads as an int, than a `Decimal` has room for."""


@pytest.mark.parametrize("digits", DIGITS)
@pytest.mark.parametrize("kind", READERS)
def test_an_amount_that_is_absurdly_long_is_refused_briefly(kind: str, digits: int) -> None:
    unit = {"duration": "s", "size": "B", "ratio": "%", "multiple": "x"}.get(kind, "")
    text = f"{'$' if kind == 'money' else ''}{'1' * digits}{unit}"

    error = refused(lambda: READERS[kind](text))

    assert error.code == "HM207"
    assert len(error.message) < 80


SETTINGS = {
    "a count": "provider anthropic {{ queue {} }}",
    "a compound duration": "provider anthropic {{ timeout connect 1h{}m }}",
    "a multiple": "provider anthropic {{ reaper idle {}x }}",
    "a ratio": "provider anthropic {{ aimd decrease 0.{} }}",
    "a status": "retry r {{ on [{}] }}\nprovider anthropic {{ }}",
    "a range of statuses": "retry r {{ on [400..{}] }}\nprovider anthropic {{ }}",
    "the language's version": "hmp {}\nprovider anthropic {{ }}",
    "a port": 'server {{ listen "127.0.0.1:{}" }}\nprovider anthropic {{ }}',
    "an upstream's port": 'provider lab {{ api vllm; base "http://lab:{}" }}',
    "a number in a condition": "rule r when tokens.in > {} {{ priority 2 }}\nprovider anthropic {{ }}",
}


@pytest.mark.slow
@pytest.mark.parametrize("digits", DIGITS)
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_policy_with_an_absurdly_long_number_is_refused(setting: str, digits: int) -> None:
    checked = check("team.hmp", MemoryFiles({"team.hmp": setting.format("1" * digits)}))

    assert checked.program is None
    assert {found.code for found in checked.diagnostics} & {"HM006", "HM207", "HM217"}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8787", ("127.0.0.1", 8787)), ("[::1]:0", ("::1", 0)), ("localhost:65535", ("localhost", 65535)),
        ("localhost:65536", None), ("localhost:", None), ("localhost", None), ("localhost:-1", None), (":80", None),
        ("::1:80", None), ("[::g]:80", None), ("localhost:٣", None), ("localhost:000080", None),
        ("localhost: 80", None),
    ],
)  # fmt: skip
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int] | None) -> None:
    assert parse_address(text) == address
