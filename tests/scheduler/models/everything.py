"""Policies with everything in them at once, drawn, and what can happen under them: for the machine that holds the
fifteen invariants. Few names and low bounds, so that everything collides and is full soon.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs
from hypothesis import strategies as st

from hivemind_trio.model import Api, Decision, Dimension, Outcome, QuotaReading, Request, Usage
from hivemind_trio.policy import (
    DEFAULT_LANE,
    DEFAULT_RETRY,
    UNKNOWN_AGENT,
    AimdSettings,
    BudgetAllowance,
    BudgetSettings,
    CircuitBreakerSettings,
    DegradedSettings,
    Failure,
    Jitter,
    Measure,
    Objective,
    Per,
    Program,
    RateLimitSettings,
    RetrySettings,
    Threshold,
    WhileOpen,
    Window,
)
from hivemind_trio.scheduler import AttemptResult
from tests.support.policies import compiled
from tests.support.programs import SECOND_NS, agent, lane, program, provider, team, wish

from .drawn import scattered

PROVIDERS = ("p", "q", "r")
"""Each falls back to the next."""
AGENTS = {"ci": "build", "bot": "build", "solo": "none"}
CALLERS = ("x", "y", "ci")
MINUTE_NS = 60 * SECOND_NS

UNIT = {Dimension.REQUESTS: 2, Dimension.INPUT: 70, Dimension.OUTPUT: 25, Dimension.TOKENS: 90}
"""What two calls or so take."""

providers = scattered(
    declared=[True] * 9 + [False],
    api=[Api.ANTHROPIC, Api.OPENAI],
    limit=[2, 4, 1, 3, 8],
    groups=[{}, {"opus*": 1}, {"opus*": None}, {None: 2, "opus*": None}],
    queue=[None] * 6 + [2, 0],
    aimd=[None, (1, 1), (1, 2), (2, 4)],
    cooldown_ns=[0, 5 * SECOND_NS],
    breaker=[
        CircuitBreakerSettings(of=1_000),
        CircuitBreakerSettings(of=2),
        CircuitBreakerSettings(of=4, probes=1),
        CircuitBreakerSettings(of=2, open_ns=50 * SECOND_NS),
    ],
    while_open=[WhileOpen.HOLD, WhileOpen.FALLBACK, WhileOpen.REFUSE],
    retry=[DEFAULT_RETRY, "other"],
    objective=list(Objective),
    learns=[True, False],
    worthless=[False, False, False, True],
)
quotas = scattered(
    declared=[True, True, False],
    dimension=list(Dimension),
    amount=[1, 2, 3, 6],
    window_ns=[MINUTE_NS, 10 * SECOND_NS],
    headroom=[0.02, 0.0],
    window=list(Window),
)
lanes = scattered(
    declared=[True] * 5 + [False],
    weight=[1, 2, 3],
    reserve=[0, 0, 0, 1, "50%"],
    max=[None, None, 1, 2, "25%"],
    deadline_ns=[None] * 4 + [0, 3 * SECOND_NS, 40 * SECOND_NS],
    queue=[None] * 5 + [0, 2],
    shed_oldest=[False, True],
    priority=[0, 1],
    aging_ns=[None, SECOND_NS, 10 * SECOND_NS],
    objective=[None, *Objective],
)
agents = scattered(
    declared=[True] * 5 + [False], concurrency=[None, None, 1, 2], queue=[None] * 6 + [0, 1], weight=[1, 3]
)
retries = scattered(
    attempts=[100, 1, 2, 4],
    first_ns=[SECOND_NS, 0, 3],
    last_ns=[4 * SECOND_NS, 0],
    jitter=list(Jitter),
    honor_max_ns=[60 * SECOND_NS, 2 * SECOND_NS],
    ratio=[0.2, 0.0, 1.0],
)
budgets = scattered(
    declared=[False, True],
    per=[Per.ALL, Per.AGENT, Per.TEAM, Per.MODEL, Per.PROVIDER, Per.KEY],
    measure=[Measure.TOKENS, Measure.OUTPUT, Measure.REQUESTS],
    amount=[400, 100, 5, 2],
    window_ns=[MINUTE_NS, 3_600 * SECOND_NS],
    calendar=[True, False],
    stop=["hold", "deny", None],
    step=[{}, {"lane": DEFAULT_LANE}, {"priority": 2}, {"model": "haiku-1"}, {"warn": True}],
)
whole = scattered(
    weight=[1, 3],
    max_waiting=[100] * 9 + [3],
    refuse_unknown=[False] * 19 + [True],
    attempts_allowed=[100, 100, 2],
    budgets_of=["", "opus"],
)


@cache
def worthless() -> DegradedSettings:
    """What says that an answer without output is worth nothing."""
    text = 'provider anthropic { base "http://127.0.0.1:9"; degraded when tokens.out == 0 }'
    degraded = compiled(text).providers["anthropic"].degraded
    assert degraded is not None
    return degraded


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Mostly with everything in it: what is missing is only interesting where it was there before."""
    told = draw(whole)
    declared = {name: draw(providers) for name in PROVIDERS}
    declared = {name: each for name, each in declared.items() if each.pop("declared")}
    drawn_budgets = {name: _budget(name, draw(budgets)) for name in ("all", "each")}
    budget_table = {name: budget for name, budget in drawn_budgets.items() if budget is not None}
    lane_table = {name: draw(lanes) for name in ("a", "b", DEFAULT_LANE)}
    agent_table = {name: draw(agents) for name in (*AGENTS, UNKNOWN_AGENT)}
    unknown = {name: each for name, each in agent_table.pop(UNKNOWN_AGENT).items() if name != "declared"}
    base = program(
        providers=[_provider(name, list(declared), each, draw) for name, each in declared.items()],
        lanes=[lane(name, **each) for name, each in lane_table.items() if each.pop("declared")],
        agents=[agent(name, team=AGENTS[name], **each) for name, each in agent_table.items() if each.pop("declared")],
        teams=[team("build", weight=told["weight"])],
        unknown=agent(UNKNOWN_AGENT, **unknown),
        retries=[RetrySettings(name=name, **draw(retries)) for name in (DEFAULT_RETRY, "other")],
        max_waiting=told["max_waiting"],
        refuse_unknown=told["refuse_unknown"],
    )

    def decide(request: Request) -> Decision:
        treatment = base.decide(request)
        if request.attempt > told["attempts_allowed"]:
            return attrs.evolve(treatment, provider=None)
        if not request.model.startswith(told["budgets_of"]):
            return treatment
        return attrs.evolve(treatment, budgets=tuple(budget_table))

    return attrs.evolve(base, decide=decide, budgets=budget_table)


def _provider(name: str, names: list[str], drawn: dict[str, Any], draw: st.DrawFn) -> Any:
    cooldown_ns, aimd = drawn.pop("cooldown_ns"), drawn.pop("aimd")
    if aimd is not None:
        low, start = (min(bound, drawn["limit"]) for bound in aimd)
        aimd = AimdSettings(low=low, start=start, cooldown_ns=cooldown_ns)
    after = names[names.index(name) + 1 :]
    if not after and drawn["while_open"] is WhileOpen.FALLBACK:
        drawn["while_open"] = WhileOpen.HOLD
    learns, degraded = drawn.pop("learns"), worthless() if drawn.pop("worthless") else None
    made = provider(name, aimd=aimd, fallback=after[0] if after else None, **drawn)
    groups = []
    for group in made.groups:
        wanted = [draw(quotas) for _ in range(2)]
        wanted = [each | {"amount": each["amount"] * UNIT[each["dimension"]]} for each in wanted]
        kept = {
            (each["dimension"], each["window_ns"]): RateLimitSettings(**each) for each in wanted if each.pop("declared")
        }
        groups.append(attrs.evolve(group, quotas=tuple(kept.values())))
    return attrs.evolve(made, groups=tuple(groups), learns=learns, degraded=degraded)


def _budget(name: str, drawn: dict[str, Any]) -> BudgetSettings | None:
    if not drawn.pop("declared"):
        return None
    allowance = BudgetAllowance(drawn["measure"], drawn["amount"], drawn["window_ns"], drawn["calendar"])
    steps = [Threshold(share=0.5, **drawn["step"])] if drawn["step"] else []
    match drawn["stop"]:
        case "hold":
            steps.append(Threshold(share=1.0, hold=True))
        case "deny":
            steps.append(Threshold(share=1.0, deny="no more"))
    if not steps:
        steps = [Threshold(share=1.0, warn=True)]
    return BudgetSettings(
        name=name, per=drawn["per"], allowances=(allowance,), thresholds=tuple(steps), at="test.hmp:1"
    )


def _request(picked: dict[str, Any]) -> tuple[Request, dict[str, Any]]:
    facts = {name: picked.pop(name) for name in ("tokens_in", "tokens_max_out")}
    more = {name: picked.pop(name) for name in ("caller", "job", "again", "patience_ns", "held_ns", "needs_slot")}
    return attrs.evolve(wish(**picked), apis=(Api.ANTHROPIC, Api.OPENAI), **facts), more


calls = scattered(
    agent=[None, *AGENTS],
    provider=["p", "p", "q", "r", None],
    model=["opus-1", "haiku-1"],
    lane=[None, "a", "b"],
    priority=[None, None, 0, 2],
    deadline_ns=[None] * 6 + [0, 9 * SECOND_NS],
    deny=[False] * 29 + [True],
    tokens_in=[10, 0, 60, 150],
    tokens_max_out=[5, 1, 40],
    caller=CALLERS,
    job=["", "j"],
    again=["", "", "a"],
    patience_ns=[None] * 4 + [0, 20 * SECOND_NS],
    held_ns=[None] * 2 + [0, 10 * SECOND_NS],
    needs_slot=[True] * 19 + [False],
).map(_request)
"""(request, the rest of the call)."""

STATUS = {Outcome.SUCCEEDED: 200, Outcome.SLOW: 200, Outcome.OVERLOADED: 529, Outcome.FAILED: 500, Outcome.IGNORED: 400}
# Not exact: then nothing is learned for the next estimate, and an observer can say what each call was thought to take.
USAGES = [None, None, Usage(input=1, output=1, exact=False), Usage(input=90, cache_read=9, output=60, exact=False)]
USAGES += [Usage(output=3, exact=False), Usage(input=10, output=0, exact=False)]


def _ended(picked: dict[str, Any]) -> AttemptResult:
    outcome: Outcome = picked["outcome"]
    status, failure = STATUS.get(outcome, 429), None
    if outcome is Outcome.UNREACHABLE:
        status, failure = 0, Failure.CONNECT
    elif outcome is Outcome.FAILED and picked["silent"]:
        status, failure = 0, Failure.RESET
    return AttemptResult(
        outcome=outcome,
        status=status,
        failure=failure,
        retry_after_ns=picked["retry_after_ns"],
        used_up=picked["used_up"],
        final=picked["final"],
        usage=picked["usage"],
        committed=picked["committed"],
    )


# `DEGRADED` is the scheduler's own word for an answer that was good.
OUTCOMES = [outcome for outcome in Outcome if outcome is not Outcome.DEGRADED]
ends = scattered(
    outcome=[Outcome.SUCCEEDED, Outcome.SUCCEEDED, *OUTCOMES, Outcome.OVERLOADED, Outcome.FAILED],
    silent=[False, True],
    retry_after_ns=[None, None, 0, 1, 5 * SECOND_NS, 300 * SECOND_NS],
    used_up=[(), (Dimension.REQUESTS,)],
    final=[False] * 7 + [True],
    usage=USAGES,
    committed=[False, True],
).map(_ended)
bad = scattered(
    outcome=[Outcome.OVERLOADED, Outcome.FAILED, Outcome.UNREACHABLE, Outcome.QUOTA, Outcome.BURST, Outcome.TERMINAL],
    silent=[False],
    retry_after_ns=[None, 5 * SECOND_NS],
    used_up=[()],
    final=[False],
    usage=[None],
    committed=[False],
).map(_ended)

readings = st.lists(
    scattered(
        dimension=list(Dimension),
        limit=[None, 200, 3, 100, 10**9],
        remaining=[None, 0, 1, 100, 10**9],
        resets_ns=[None, 0, 1, SECOND_NS, 30 * SECOND_NS, MINUTE_NS, 86_400 * SECOND_NS],
        window_ns=[None, None, MINUTE_NS, 10 * SECOND_NS, 1],
        rounding=[0, 5],
    ).map(lambda picked: QuotaReading(**picked)),
    max_size=3,
)
