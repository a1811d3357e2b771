"""Wire format of simulated providers: refusals and quota headers, read by the readers of real answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from hivemind_trio.dialects import DIALECTS, SimulatedRefusal, error_fields
from hivemind_trio.model import Api, Outcome
from hivemind_trio.model import Dimension as Counted
from hivemind_trio.model import QuotaReading as Told
from hivemind_trio.scheduler import AttemptResult
from hivemind_trio.wire import error_types, read_signal, used_up

from .profile import SECOND_NS
from .provider import Refused, Trouble
from .token_bucket import Metered, Reading

_COUNTED: Final = {
    Metered.REQUESTS: Counted.REQUESTS,
    Metered.INPUT: Counted.INPUT,
    Metered.OUTPUT: Counted.OUTPUT,
    Metered.TOKENS: Counted.TOKENS,
}


def ended(api: Api, refused: Refused) -> AttemptResult:
    """Return the result of an attempt that was refused."""
    headers, body = words(api, refused)
    signal = read_signal(refused.status, headers, body)
    return AttemptResult(
        outcome=signal.outcome,
        status=refused.status,
        retry_after_ns=signal.retry_after_ns,
        by_reset=signal.by_reset,
        used_up=used_up(headers, body) if signal.outcome is Outcome.QUOTA else (),
        final=signal.final,
        error_types=error_types(headers, body),
    )


def told(api: Api, readings: Mapping[Metered, Reading], now_ns: int) -> tuple[Told, ...]:
    """Return the readings of the head of an answer sent at `now_ns`; empty where the provider reports none.

    Made without the text, which would take most of the time of a run: `tests/demo/test_told.py` holds that it is what
    the headers of the provider behind a socket come to. Times are in whole units, upwards.
    """
    readings_of = DIALECTS[api].simulated.readings
    if readings_of is None:
        return ()
    return readings_of({_COUNTED[metered]: reading for metered, reading in readings.items()}, now_ns)


def tells_plan(api: Api) -> bool:
    """Return True if answers in this dialect can report a plan."""
    return DIALECTS[api].simulated.plan_used_up is not None


def words(api: Api, refused: Refused) -> tuple[dict[str, str], bytes]:
    """Headers, lower-case, and the body. A gateway's page says nothing; times are in whole seconds, upwards."""
    answers = DIALECTS[api].simulated
    dimension = None if refused.dimension is None else _COUNTED[refused.dimension]
    headers: dict[str, str] = {}
    if refused.retry_after_ns is not None and answers.says_retry_after:
        headers["retry-after"] = str(-(-refused.retry_after_ns // SECOND_NS))
    if dimension is not None:
        headers |= answers.used_up(dimension)
    kind = refused.kind
    if refused.trouble is Trouble.PLAN and answers.plan_used_up is not None:
        assert refused.retry_after_ns is not None
        kind, told = answers.plan_used_up(-(-refused.retry_after_ns // SECOND_NS))
        headers |= told
    if refused.status == 502 and not refused.is_exact:
        return headers, b"<html><body>502 Bad Gateway</body></html>"
    refusal = SimulatedRefusal(
        status=refused.status,
        kind=kind,
        message=refused.message,
        dimension=dimension,
        retry_after_ns=refused.retry_after_ns,
    )
    error = answers.error(refusal)
    if refused.is_exact:
        fields = error_fields(error)
        fields["status" if isinstance(fields.get("code"), int) else "type"] = refused.kind
    return headers, json.dumps(error).encode()
