"""Calls, drawn."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from hypothesis import strategies as st

from hivemind_trio.model import Api, CountedBy, Outcome, Reason, RecordedAttempt, RecordedCall, Request, Usage

TIMES = st.integers(0, 10**15)
COUNTS = st.integers(0, (1 << 63) - 1)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.sampled_from(["x-ci-job", "user-agent", "x-priority", "anthropic-beta"])
USAGES = st.builds(
    Usage, input=st.none() | COUNTS, cache_read=COUNTS, cache_write=COUNTS, output=COUNTS, exact=st.booleans()
)
REQUESTS = st.builds(
    Request,
    apis=st.lists(st.sampled_from(Api), max_size=2, unique=True).map(tuple),
    token_agent=st.none() | WORDS,
    claimed=st.none() | WORDS,
    model=WORDS,
    method=st.sampled_from(["POST", "GET"]),
    path=WORDS,
    stream=st.booleans(),
    tools=st.booleans(),
    images=st.booleans(),
    tokens_in=COUNTS,
    tokens_counted=COUNTS,
    counted_by=st.none() | st.sampled_from(CountedBy),
    tokens_max_out=COUNTS,
    cost_microusd=COUNTS,
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    date=st.sampled_from(["", "2026-12-25"]),
    weekday=st.integers(1, 7),
    headers=st.dictionaries(NAMES, st.sampled_from(["", "urgent", "Größe 1", "x\ny"]), max_size=3),
    meta=st.dictionaries(NAMES, st.sampled_from(["a", "ü"]), max_size=1),
)


@st.composite
def calls(draw: st.DrawFn) -> list[RecordedCall]:
    """Calls in the order in which they arrive, the first at 0, each as whole as it happens to be."""
    found: list[RecordedCall] = []
    at_ns = 0
    for _ in range(draw(st.integers(1, 5))):
        request = draw(REQUESTS)
        attempts = tuple(draw(_attempts(at_ns, request.model)))
        last_ns = max([at_ns, *(each.ended_ns or each.granted_ns for each in attempts)])
        ended_ns = draw(st.none() | st.integers(last_ns, last_ns + 10**10))
        refused = draw(st.none() | st.sampled_from(Reason))
        agent = draw(WORDS.filter(bool)) if attempts or refused is not None else ""
        found.append(
            RecordedCall(
                arrived_ns=at_ns,
                request=request,
                caller=draw(WORDS),
                agent=agent,
                job=draw(WORDS),
                prefix=draw(WORDS),
                again=draw(WORDS),
                needs_slot=draw(st.booleans()),
                attempts=attempts,
                refused=refused,
                status=None if ended_ns is None else draw(st.sampled_from([0, 200, 429, 529])),
                ended_ns=ended_ns,
            )
        )
        at_ns += draw(st.integers(0, 10**10))
    return found


@st.composite
def _attempts(draw: st.DrawFn, at_ns: int, model: str) -> Iterable[RecordedAttempt]:
    found = []
    for _ in range(draw(st.integers(0, 3))):
        granted_ns = at_ns + draw(st.integers(0, 10**10))
        attempt = RecordedAttempt(
            granted_ns=granted_ns, waited_ns=draw(TIMES), provider=draw(WORDS), model=draw(WORDS) or model
        )
        at_ns = granted_ns + draw(st.integers(0, 10**10))
        if draw(st.booleans()):
            attempt = attrs.evolve(
                attempt,
                ended_ns=at_ns,
                outcome=draw(st.sampled_from(Outcome)),
                status=draw(st.sampled_from([0, 200, 529])),
                committed=draw(st.booleans()),
                first_byte_ns=draw(st.none() | TIMES),
                usage=draw(st.none() | USAGES),
            )
        found.append(attempt)
    return found
