"""Drawings of the adversary bench: the space that providers and fleets are drawn from, and scenarios by name.

A drawing is written `SEED` or `SEED,PARAMETER=SEED,...`: every parameter is drawn by itself from the seed and its name,
so a search can draw some of them anew and keep the others. With `keys=own` at its end, each agent has a key of its own
for the one account.

The hold-out, fixed before the first run and kept out of all tuning, is a tenth of the seeds (those that end in 7) and
three combinations of kinds (`held_out`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import attrs

from bench.simulated.worlds import compiled
from hivemind_trio.model import Api
from hivemind_trio.model import Dimension as Counted
from hivemind_trio.policy import Program

from .provider import (
    SECOND_NS,
    Ask,
    Charge,
    Fates,
    Full,
    Guard,
    Kind,
    Others,
    Quota,
    Reset,
    Shape,
    Spelling,
    Storm,
    Tells,
    Traits,
    Word,
)
from .run import Drawing, Job, Turn, model_of

HOLDOUT_DIGIT: Final = 7


def held_out(seed: int, values: Mapping[str, Any]) -> bool:
    """True if a drawing belongs to the hold-out."""
    return (
        seed % 10 == HOLDOUT_DIGIT
        or (values["kind"] is Kind.GCRA and values["tells"] is Tells.NTH)
        or (values["kind"] is Kind.ROLLING and values["spelling"] is Spelling.DATE)
        or (values["full"] is Full.OVERLOADED and values["shape"] is Shape.LINEAR and values["cap"] > 0)
    )


# ---- the space ----


def _log(low: float, high: float) -> Callable[[Random], float]:
    return lambda chance: math.exp(chance.uniform(math.log(low), math.log(high)))


def _one_of(*choices: tuple[float, Any]) -> Callable[[Random], Any]:
    """Of values with weights; a value that can be called is drawn in turn."""

    def draw(chance: Random) -> Any:
        (found,) = chance.choices([value for _, value in choices], [weight for weight, _ in choices])
        return found(chance) if callable(found) else found

    return draw


def _storms(chance: Random) -> tuple[Storm, ...]:
    drawn = []
    for _ in range(chance.randint(1, 2)):
        from_ns = int(chance.uniform(0, 60) * SECOND_NS)
        status = chance.choice((529, 529, 500, 502, 503, 0))
        share = chance.choice((1.0, 1.0, chance.uniform(0.5, 0.95)))
        drawn.append(
            Storm(from_ns=from_ns, to_ns=from_ns + int(_log(3, 40)(chance) * SECOND_NS), share=share, status=status)
        )
    return tuple(drawn)


def _moves(chance: Random) -> tuple[tuple[float, float], ...]:
    """(Second, factor) of a cap that moves."""
    at_s, factor, moves = 0.0, 1.0, []
    for _ in range(chance.randint(1, 4)):
        at_s += chance.uniform(5, 40)
        factor = chance.choice((0.3, 0.5, 1.0, 2.0))
        moves.append((at_s, factor))
    return tuple(moves)


PARAMETERS: Final[dict[str, Callable[[Random], Any]]] = {
    # the fleet
    "agents": lambda chance: round(_log(5, 60)(chance)),
    "turns": lambda chance: chance.randint(2, 8),
    "uneven": _one_of((0.5, False), (0.5, True)),
    "start_s": _one_of((0.5, 0.0), (0.5, _log(2, 60))),
    "think_s": _one_of((0.4, 0.0), (0.4, 1.0), (0.2, 5.0)),
    "patience_s": _one_of((0.5, 120.0), (0.5, 600.0)),
    "tokens_in": _log(300, 20_000),
    "tokens_out": _log(40, 1_200),
    "tokens_max": _one_of((1, 1_024), (1, 4_096), (1, 8_192)),
    "spread": lambda chance: chance.uniform(0, 1),
    # service
    "api": _one_of((0.5, Api.ANTHROPIC), (0.5, Api.OPENAI)),
    "first_s": _log(0.2, 5),
    "token_ms": _log(4, 40),
    "rtt_ms": _log(2, 150),
    "shape": _one_of((0.55, Shape.FLAT), (0.2, Shape.LINEAR), (0.25, Shape.QUADRATIC)),
    "knee": lambda chance: round(_log(2, 30)(chance)),
    # models
    "groups": _one_of((0.65, 1), (0.25, 2), (0.1, 3)),
    "unlimited": _one_of((0.6, 0), (0.4, 1)),
    # quotas
    "kind": _one_of((0.35, Kind.BUCKET), (0.25, Kind.FIXED), (0.2, Kind.ROLLING), (0.2, Kind.GCRA)),
    "requests": _one_of((0.3, 0.0), (0.7, _log(30, 1_200))),
    "input": _one_of((0.6, 0.0), (0.4, _log(30_000, 3_000_000))),
    "output": _one_of((0.75, 0.0), (0.25, _log(8_000, 400_000))),
    "window_s": _one_of((0.75, 60), (0.15, 10), (0.1, 1)),
    "depth": _log(0.02, 1),
    "phase": lambda chance: chance.random(),
    "from_first": _one_of((0.5, False), (0.5, True)),
    "charge": _one_of((1, Charge.BEFORE), (1, Charge.REFUND), (1, Charge.AFTER)),
    "refusals_count": _one_of((0.7, False), (0.3, True)),
    "others": _one_of((0.7, None), (0.3, lambda chance: Others(share=chance.uniform(0.1, 0.6)))),
    "others_pause": _one_of((0.5, (0, 0)), (0.5, lambda chance: (chance.randint(5, 40), chance.randint(5, 40)))),
    # what is said
    "tells": _one_of((0.45, Tells.ALL), (0.15, Tells.REFUSALS), (0.15, Tells.NTH), (0.25, Tells.NONE)),
    "stale_s": _one_of((0.7, 0), (0.1, 1), (0.1, 5), (0.1, 15)),
    "round_to": _one_of((0.6, 1), (0.2, 10), (0.2, 1_000)),
    "round_up": _one_of((0.5, False), (0.5, True)),
    "dated": _one_of((0.7, True), (0.3, False)),
    "clock_off_s": _one_of((0.7, 0.0), (0.3, lambda chance: chance.uniform(-30, 30))),
    "reset": _one_of(
        (0.4, Reset.NATIVE), (0.15, Reset.DOWN), (0.15, Reset.EPOCH), (0.15, Reset.SECONDS), (0.15, Reset.ABSENT)
    ),
    "reset_whole": _one_of((0.7, True), (0.3, False)),
    "word": _one_of(
        (0.4, Word.TRUE), (0.2, Word.ABSENT), (0.1, Word.SHORT), (0.1, Word.LONG), (0.1, Word.LIE), (0.1, Word.ONE)
    ),
    "spelling": _one_of((0.6, Spelling.SECONDS), (0.2, Spelling.MS), (0.2, Spelling.DATE)),
    "worded": _one_of((0.7, True), (0.3, False)),
    # concurrency
    "cap": _one_of((0.5, 0), (0.5, lambda chance: round(_log(2, 40)(chance)))),
    "cap_moves": _one_of((0.65, ()), (0.35, _moves)),
    "full": _one_of((0.4, Full.WORDED), (0.3, Full.BARE), (0.3, Full.OVERLOADED)),
    "guard": _one_of(
        (0.88, None), (0.12, lambda chance: Guard(base=chance.randint(3, 20), factor=chance.uniform(1.2, 2.5)))
    ),
    # failures
    "storms": _one_of((0.7, ()), (0.3, _storms)),
    "overloads": _one_of((0.8, 0.0), (0.2, _log(0.01, 0.3))),
    "reset_share": _one_of((0.8, 0.0), (0.2, _log(0.005, 0.1))),
    "stall_share": _one_of((0.85, 0.0), (0.15, _log(0.003, 0.04))),
    "error_status": _one_of((1, 529), (1, 500)),
    "error_first": _one_of((0.85, 0.0), (0.15, _log(0.01, 0.2))),
    "error_started": _one_of((0.85, 0.0), (0.15, _log(0.01, 0.2))),
    "error_mid": _one_of((0.9, 0.0), (0.1, _log(0.005, 0.06))),
    "no_end": _one_of((0.9, 0.0), (0.1, _log(0.005, 0.06))),
}


OWN_KEYS: Final = ",keys=own"
"""End of the name of a drawing whose agents have keys of their own."""


def parsed(text: str) -> tuple[int, dict[str, int]]:
    """A drawing's seed, and the parameters that have seeds of their own.

    Raises:
        ValueError: With words for people.
    """
    first, *rest = text.removesuffix(OWN_KEYS).split(",")
    own = {}
    for each in rest:
        name, _, seed = each.partition("=")
        if name not in PARAMETERS or not seed.isdecimal():
            raise ValueError(f"`{each}` is no parameter with a seed; write for example `agents=5`")
        own[name] = int(seed)
    if not first.isdecimal():
        raise ValueError(f"`{first}` is no seed; write a number, or the name of a scenario")
    return int(first), own


def written(seed: int, own: Mapping[str, int]) -> str:
    """The reverse of `parsed`."""
    return ",".join([str(seed), *(f"{name}={each}" for name, each in sorted(own.items()))])


def values_of(text: str) -> dict[str, Any]:
    """The parameters of a drawing."""
    seed, own = parsed(text)
    return {name: draw(Random(f"adversary/{own.get(name, seed)}/{name}")) for name, draw in PARAMETERS.items()}


def drawn(text: str) -> Drawing:
    """The drawing of this name."""
    seed, _ = parsed(text)
    values = values_of(text)
    traits = _traits(values)
    chance = Random(f"adversary/{seed}/jobs")
    jobs = tuple(_job(number, values, traits, chance) for number in range(values["agents"]))
    return Drawing(
        name=text,
        seed=seed,
        traits=traits,
        jobs=jobs,
        patience_ns=int(values["patience_s"] * SECOND_NS),
        own_keys=text.endswith(OWN_KEYS),
    )


def _traits(values: Mapping[str, Any]) -> Traits:
    groups = values["groups"]
    others = values["others"]
    if others is not None:
        on_s, off_s = values["others_pause"]
        others = attrs.evolve(others, on_ns=on_s * SECOND_NS, off_ns=off_s * SECOND_NS)
    caps: tuple[tuple[int, int], ...] = ()
    if values["cap"]:
        moves = ((0.0, 1.0), *values["cap_moves"])
        caps = tuple((int(at_s * SECOND_NS), max(1, round(values["cap"] * factor))) for at_s, factor in moves)
    return Traits(
        api=values["api"],
        quotas=_quotas(values),
        groups=groups,
        unlimited=values["unlimited"] if groups > 1 else 0,
        charge=values["charge"],
        refusals_count=values["refusals_count"],
        tells=values["tells"],
        stale_ns=values["stale_s"] * SECOND_NS,
        round_to=values["round_to"],
        round_up=values["round_up"],
        dated=values["dated"],
        clock_off_s=values["clock_off_s"],
        reset=values["reset"],
        reset_whole=values["reset_whole"],
        word=values["word"],
        spelling=values["spelling"],
        worded=values["worded"],
        caps=caps,
        full=values["full"],
        guard=values["guard"],
        others=others,
        storms=values["storms"],
        overloads=values["overloads"],
        fates=Fates(
            reset=values["reset_share"],
            stall=values["stall_share"],
            error_first=values["error_first"],
            error_started=values["error_started"],
            error_mid=values["error_mid"],
            no_end=values["no_end"],
        ),
        error_status=values["error_status"],
        shape=values["shape"],
        knee=max(2, values["knee"]),
        first_ns=int(values["first_s"] * SECOND_NS),
        token_ns=int(values["token_ms"] * 1e6),
        rtt_ns=int(values["rtt_ms"] * 1e6),
    )


def _quotas(values: Mapping[str, Any]) -> tuple[Quota, ...]:
    """Limits per minute become limits per window; one that no single call fits into is raised to two calls."""
    openai = values["api"] is Api.OPENAI
    largest_in, largest_out = int(values["tokens_in"] * 3) + 1, values["tokens_max"]
    rates = {Counted.REQUESTS: (values["requests"], 1)}
    if openai:
        rates[Counted.TOKENS] = (values["input"], largest_in + largest_out)
    else:
        rates[Counted.INPUT] = (values["input"], largest_in)
        rates[Counted.OUTPUT] = (values["output"], largest_out)
    quotas = []
    for counted, (rate, largest) in rates.items():
        if not rate:
            continue
        limit = max(1, 2 * largest if largest > 1 else 1, round(rate * values["window_s"] / 60))
        depth = min(limit, max(1, 2 * largest if largest > 1 else 1, round(limit * values["depth"])))
        quotas.append(
            Quota(
                counted=counted,
                kind=values["kind"],
                limit=limit,
                window_ns=values["window_s"] * SECOND_NS,
                depth=depth,
                phase_ns=int(values["phase"] * values["window_s"] * SECOND_NS),
                from_first=values["from_first"],
            )
        )
    return tuple(quotas)


def _job(number: int, values: Mapping[str, Any], traits: Traits, chance: Random) -> Job:
    def size(mean: float, most: float) -> int:
        spread = values["spread"]
        return max(1, round(min(most, mean * math.exp(spread * chance.gauss(0, 1) - spread * spread / 2))))

    name = f"agent-{number}"
    group = number % traits.groups
    count = chance.randint(1, 2 * values["turns"] - 1) if values["uneven"] else values["turns"]
    turns = []
    for turn in range(count):
        ask = Ask(
            key=f"{name}/{turn + 1}",
            tokens_in=size(values["tokens_in"], values["tokens_in"] * 3),
            tokens_out=size(values["tokens_out"], values["tokens_max"]),
            tokens_max=values["tokens_max"],
            group=group,
        )
        think_s = 0.0 if turn == 0 else values["think_s"] * chance.uniform(0.5, 1.5)
        turns.append(Turn(ask=ask, think_ns=int(think_s * SECOND_NS)))
    return Job(agent=name, start_ns=int(chance.random() * values["start_s"] * SECOND_NS), turns=tuple(turns))


# ---- by name ----


def _requests(limit: int, kind: Kind = Kind.BUCKET, *, depth: int = 0, from_first: bool = False) -> tuple[Quota, ...]:
    return (Quota(counted=Counted.REQUESTS, kind=kind, limit=limit, depth=depth, from_first=from_first),)


def _fleet(agents: int, turns: int, *, tokens_out: int = 100, think_s: float = 0.0, groups: int = 1) -> tuple[Job, ...]:
    return tuple(
        Job(
            agent=f"agent-{number}",
            start_ns=0,
            turns=tuple(
                Turn(
                    ask=Ask(
                        key=f"agent-{number}/{turn + 1}",
                        tokens_in=2_000,
                        tokens_out=tokens_out + (number * 7 + turn * 13) % 20,
                        tokens_max=4_096,
                        group=number % groups,
                    ),
                    think_ns=int(think_s * SECOND_NS) if turn else 0,
                )
                for turn in range(turns)
            ),
        )
        for number in range(agents)
    )


_QUICK: Final = Traits(first_ns=SECOND_NS // 2, token_ns=10_000_000)
_BUCKET_4: Final = attrs.evolve(_QUICK, quotas=_requests(120, depth=4))
_SLOW: Final = attrs.evolve(_QUICK, first_ns=SECOND_NS, token_ns=40_000_000)
_SILENT: Final = attrs.evolve(_QUICK, tells=Tells.NONE)

_NAMED: Final[dict[str, tuple[Traits, tuple[Job, ...]]]] = {
    "bucket-4": (_BUCKET_4, _fleet(30, 6)),
    "bucket-4-no-date": (attrs.evolve(_BUCKET_4, dated=False), _fleet(30, 6)),
    "bucket-4-same-second": (attrs.evolve(_BUCKET_4, reset_whole=False, reset=Reset.DOWN), _fleet(30, 6)),
    "bucket-4-refusals-only": (attrs.evolve(_BUCKET_4, tells=Tells.REFUSALS, dated=False), _fleet(30, 6)),
    "no-headers": (attrs.evolve(_BUCKET_4, tells=Tells.NONE, word=Word.ABSENT, worded=False), _fleet(30, 6)),
    "storm-15": (
        attrs.evolve(_SLOW, storms=(Storm(from_ns=10 * SECOND_NS, to_ns=25 * SECOND_NS),)),
        _fleet(30, 6),
    ),
    # One call in ten is served: no circuit opens, and few at once are refused as often as many.
    "storm-90": (
        attrs.evolve(
            _SLOW,
            word=Word.ABSENT,
            storms=tuple(
                Storm(from_ns=start_s * SECOND_NS, to_ns=(start_s + 10) * SECOND_NS, share=0.9)
                for start_s in (10, 70, 130)
            ),
        ),
        _fleet(30, 8),
    ),
    "outage-15": (
        attrs.evolve(_SLOW, storms=(Storm(from_ns=10 * SECOND_NS, to_ns=25 * SECOND_NS, status=0),)),
        _fleet(30, 6),
    ),
    "error-first": (attrs.evolve(_QUICK, fates=Fates(error_first=0.2)), _fleet(30, 6)),
    "resets-and-stalls": (attrs.evolve(_QUICK, fates=Fates(reset=0.05, stall=0.02, no_end=0.03)), _fleet(30, 6)),
    "rpm-50": (attrs.evolve(_QUICK, quotas=_requests(50, Kind.FIXED, from_first=True)), _fleet(50, 6)),
    "rpm-50-resets": (
        attrs.evolve(_QUICK, quotas=_requests(50, Kind.FIXED, from_first=True), overloads=0.1, fates=Fates(reset=0.05)),
        _fleet(20, 10),
    ),
    "burst-240": (attrs.evolve(_QUICK, quotas=_requests(240)), _fleet(30, 6)),
    "five-on-50": (
        attrs.evolve(_QUICK, first_ns=SECOND_NS // 10, quotas=_requests(50, Kind.FIXED)),
        _fleet(5, 8, tokens_out=10),
    ),
    "gpu": (attrs.evolve(_SILENT, shape=Shape.QUADRATIC, knee=6), _fleet(30, 6, tokens_out=50)),
    # Fewer agents than the limit, and a server that slows down beyond three: the limit never binds.
    "gpu-few": (attrs.evolve(_SILENT, shape=Shape.QUADRATIC, knee=3), _fleet(7, 30, tokens_out=100, think_s=3.0)),
    "two-models": (
        attrs.evolve(_QUICK, quotas=_requests(60, depth=4), groups=2, unlimited=1),
        _fleet(30, 6, groups=2),
    ),
    "lie-60": (
        attrs.evolve(_SILENT, quotas=_requests(240, depth=12), word=Word.LIE),
        _fleet(30, 6),
    ),
    "half-others": (attrs.evolve(_QUICK, quotas=_requests(240, depth=12), others=Others(share=0.5)), _fleet(30, 6)),
    "agents-200": (attrs.evolve(_SLOW, caps=((0, 40),), tells=Tells.NONE), _fleet(200, 4)),
    "random-10": (attrs.evolve(_QUICK, overloads=0.1), _fleet(30, 6)),
    "random-30": (attrs.evolve(_QUICK, overloads=0.3), _fleet(30, 6)),
    "cap-529": (attrs.evolve(_SLOW, caps=((0, 8),), full=Full.OVERLOADED, word=Word.ABSENT), _fleet(30, 6)),
    "cap-10": (attrs.evolve(_SLOW, caps=((0, 10),), full=Full.WORDED, word=Word.ABSENT), _fleet(30, 6)),
    "cap-halves": (
        attrs.evolve(_SLOW, caps=((0, 16), (20 * SECOND_NS, 8), (50 * SECOND_NS, 16)), full=Full.WORDED),
        _fleet(30, 6),
    ),
    "azure": (
        attrs.evolve(
            _QUICK, api=Api.OPENAI, quotas=_requests(60, Kind.FIXED, from_first=True), tells=Tells.NONE, word=Word.ONE
        ),
        _fleet(30, 6),
    ),
    "rolling-60": (attrs.evolve(_QUICK, quotas=_requests(60, Kind.ROLLING), refusals_count=True), _fleet(30, 6)),
    # Output tokens are set aside by `max_tokens` and given back at the end, which the time in refusals leaves out.
    "output-set-aside": (
        attrs.evolve(
            _QUICK,
            quotas=(Quota(counted=Counted.OUTPUT, kind=Kind.GCRA, limit=21_000, depth=12_288),),
            charge=Charge.REFUND,
        ),
        _fleet(8, 6),
    ),
    # At a cap on calls at once, a 429 that does not say so and asks for long waits.
    "cap-bare-429": (attrs.evolve(_SLOW, caps=((0, 6),), full=Full.BARE, word=Word.LONG), _fleet(30, 3)),
    "guard": (attrs.evolve(_QUICK, guard=Guard(base=5, factor=1.5)), _fleet(30, 6)),
    # Each agent has a key of its own for one account, which counts refused calls and says nothing of its limits.
    "keys-of-one": (attrs.evolve(_SILENT, quotas=_requests(60, Kind.ROLLING), refusals_count=True), _fleet(20, 5)),
}

NAMED: Final[dict[str, Drawing]] = {
    name: Drawing(
        name=name,
        seed=1,
        traits=traits,
        jobs=jobs,
        patience_ns=120 * SECOND_NS,
        own_keys=name == "keys-of-one",
    )
    for name, (traits, jobs) in _NAMED.items()
}
"""Providers of `feedback.md`'s table and of its text, written by hand. Clients wait 120 s."""


def named(text: str) -> Drawing:
    """A scenario by name, or a drawing by seed.

    Raises:
        ValueError: With words for people.
    """
    return NAMED[text] if text in NAMED else drawn(text)


# ---- policies ----


def undeclared(drawing: Drawing) -> Program:
    """Nothing but the default of an adaptive concurrency."""
    api = drawing.traits.api.value
    return compiled(f'provider p {{ api {api}; base "http://127.0.0.1:9"; concurrency 2..64 }}')


def declared(drawing: Drawing) -> Program | None:
    """Limits that are true and that the language can say; None: there are none."""
    traits = drawing.traits
    fixed = len(traits.caps) == 1 and traits.others is None
    if not (traits.quotas or fixed):
        return None
    concurrency = str(traits.caps[0][1]) if fixed else "2..64"
    blocks = []
    limited = traits.groups - traits.unlimited
    for group in range(limited if traits.quotas else 0):
        glob = f'"{model_of(group)}" ' if traits.groups > 1 else ""
        blocks.append(
            f"limits {glob}{{ {'; '.join(map(_limit, traits.quotas))}; window {_WINDOW[traits.quotas[0].kind]} }}"
        )
    return compiled(
        f'provider p {{ api {traits.api.value}; base "http://127.0.0.1:9"; concurrency {concurrency}\n'
        + "\n".join(blocks)
        + "\n}"
    )


_WINDOW: Final = {Kind.BUCKET: "bucket", Kind.GCRA: "bucket", Kind.FIXED: "fixed", Kind.ROLLING: "sliding"}


def _limit(quota: Quota) -> str:
    """A bucket of depth d under n a minute is d in the time that refills d."""
    window_ns = quota.window_ns
    if quota.size < quota.limit:
        window_ns = math.ceil(quota.size / quota.rate)
    return f"{quota.counted.value} {quota.size}/{max(1, math.ceil(window_ns / 1e6))}ms"
