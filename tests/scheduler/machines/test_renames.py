"""A rename by `was` cannot be told from none, but by the names.

Two schedulers have the same history, and in one of them things are called otherwise with every policy that is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hivemind_trio.model import Api, Dimension, Outcome, QuotaReading, Reason, Request, Usage
from hivemind_trio.policy import Failure, Program
from hivemind_trio.scheduler import (
    AttemptEnded,
    AttemptResult,
    Call,
    CallArrived,
    CallCancelled,
    CallId,
    Command,
    Event,
    Finish,
    Grant,
    PolicyLoaded,
    Reject,
    ResponseStarted,
    Scheduler,
    TimePassed,
)
from tests.scheduler.driver import Driver
from tests.scheduler.models import drawn
from tests.support.policies import compiled
from tests.support.programs import SECOND_NS

NAMES: Final = (
    *("xp0", "xp1", "xk0", "xk1", "xk2", "xr0", "xl0", "xl1"),
    *("xt0", "xt1", "xa0", "xa1", "xa2", "xb0", "xb1", "xb2"),
)
"""What can be renamed: providers, accounts, a retry class, lanes, teams, agents, budgets. Renamed, `xp0` is `xp0q1`,
`xp0q2`."""

TEXT: Final = """
provider xp0 {{
  api anthropic; base "http://127.0.0.1:1"; serves ["opus*", "haiku*"]
  concurrency 1..{slots} start 1; breaker trip 50% of 4 over 30s open 5s probes 1
  fallback xp1; retry xr0
  limits "opus*" {{ requests {requests}/min; input 1k/min; concurrency 2 }}
}}
provider xp1 {{
  api anthropic; base "http://127.0.0.1:2"; serves ["gpt*", "opus*"]; concurrency {slots}; queue 6; spread {spread}
  account xk0 {{ key env(K0); limits {{ requests {requests}/min }} }}
  account xk1 {{ key env(K1); concurrency 1 }}
  account xk2 {{ key env(K2); shares xk1; for xl0 }}
}}
retry xr0 {{ on [429, 500..504, 529, connect]; attempts {attempts}; backoff 1s..4s; ratio 20% }}
lane xl0 {{ objective mean-completion; weight 3; reserve {reserve}; queue 4 overflow shed-oldest }}
lane xl1 {{ sticky agent; weight 1; max 2; deadline {deadline}s; aging 1 every 5s }}
team xt0 {{ weight 2 }}
team xt1 {{ weight 1 }}
agent xa0 {{ token env(T); team xt0; lane xl0; concurrency 2 }}
agent xa1 {{ team xt1; lane xl1; queue 3 }}
agent xa2 extends xa1 when header.x-kind == "ci" {{ team xt0; concurrency 1; priority 2 }}
budget xb0 per agent {{ tokens {tokens}/hour; at 50% {{ lane xl1; warn }}; at 100% {{ deny }} }}
budget xb1 per team {{ requests {requests}/min; at 100% {{ hold }} }}
budget xb2 per provider when stream {{ output {tokens}/10m; window sliding; at 100% {{ hold }} }}
rule xu0 when agent == xa1 and stream {{ lane xl0 }}
rule xu1 when team == xt0 and provider == xp1 {{ priority 1; retry default }}
"""

variants = drawn.settings(
    slots=[2, 3, 4],
    spread=["sticky", "first", "even"],
    requests=[3, 20, 200, 200],
    attempts=[1, 3],
    reserve=[0, 1],
    deadline=[5, 60],
    tokens=["1k", "100k", "100k"],
)

calls = drawn.settings(
    who=[None, "xa0", "xa0", "xa1", "xa1"],
    kind=["", "", "ci"],
    caller=["u", "v"],
    model=["opus-1", "opus-1", "haiku-1", "gpt-1"],
    stream=[False, True],
    again=["", "", "same"],
    job=["", "j"],
)

ends = st.sampled_from(
    [
        *[AttemptResult(outcome=Outcome.SUCCEEDED, status=200, committed=True, usage=Usage(input=90, output=300))] * 4,
        AttemptResult(outcome=Outcome.SUCCEEDED, status=200, committed=True),
        AttemptResult(outcome=Outcome.IGNORED, committed=True),
        AttemptResult(outcome=Outcome.OVERLOADED, status=529),
        AttemptResult(outcome=Outcome.FAILED, status=500),
        AttemptResult(outcome=Outcome.UNREACHABLE, failure=Failure.CONNECT),
        AttemptResult(outcome=Outcome.QUOTA, status=429, retry_after_ns=5 * SECOND_NS, used_up=(Dimension.INPUT,)),
        AttemptResult(outcome=Outcome.TERMINAL, status=402, final=True),
    ]
)


def named(version: Mapping[str, int], text: str) -> str:
    """A text in the names of now."""
    return re.sub(r"\bx[a-z]\d\b", lambda found: name_of(version, found[0]), text)


def name_of(version: Mapping[str, int], name: str) -> str:
    return f"{name}q{version[name]}" if version.get(name) else name


def plain(what: object) -> str:
    """Without what a rename has changed."""
    return re.sub(r"(\bx[a-z]\d)q\d+", r"\1", repr(what))


def renaming(variant: Mapping[str, object], before: Mapping[str, int], after: Mapping[str, int]) -> Program:
    """The policy in its new names, each of which says what it was."""
    text = named(after, TEXT.format(**variant))
    for name in NAMES:
        if before.get(name, 0) != after.get(name, 0):
            new, old = name_of(after, name), name_of(before, name)
            text = re.sub(
                rf"^( *account|provider|retry|lane|team|agent|budget) {new}\b",
                rf"\1 {new} was {old}",
                text,
                flags=re.M,
            )
    return compiled(text)


# ---- whose turn it is ----

ONE_SLOT: Final = 'provider p { api anthropic; base "http://127.0.0.1:1"; concurrency 1 }\n'

TURNS: Final = {
    "a team": (
        "team t { }\nteam u { }\nagent a { team t }\nagent b { team u }\n",
        "team s was t { }\nteam u { }\nagent a { team s }\nagent b { team u }\n",
    ),
    "an agent of a team": (
        "team t { }\nagent a { team t }\nagent b { team t }\n",
        "team t { }\nagent c was a { team t }\nagent b { team t }\n",
    ),
    "an agent among the teams": ("agent a { }\nagent b { }\n", "agent c was a { }\nagent b { }\n"),
}


@pytest.mark.parametrize(("before", "after"), TURNS.values(), ids=TURNS)
@pytest.mark.parametrize("loads", [0, 1, 2])
def test_who_has_had_something_has_had_it_under_the_new_name(before: str, after: str, loads: int) -> None:
    driver = Driver(compiled(ONE_SLOT + before))
    running = driver.ask(Request(claimed="a", apis=(Api.ANTHROPIC,)))
    mine = driver.ask(Request(claimed="a", apis=(Api.ANTHROPIC,)))
    others = driver.ask(Request(claimed="b", apis=(Api.ANTHROPIC,)))
    for _ in range(loads):
        driver.load(compiled(ONE_SLOT + after))

    driver.now_ns = SECOND_NS
    assert driver.end(running) == [others], "it is not the turn of who came first, but has had something"
    assert driver.end(others) == [mine]


def test_a_sticky_lane_goes_on_with_the_agent_that_is_called_otherwise_now() -> None:
    sticky = "lane default { sticky agent }\nagent b { }\n"
    driver = Driver(compiled(ONE_SLOT + sticky + "agent a { }\n"))
    running = driver.ask(Request(claimed="a", apis=(Api.ANTHROPIC,)))
    driver.ask(Request(claimed="b", apis=(Api.ANTHROPIC,)))
    next_of_it = driver.ask(Request(claimed="a", apis=(Api.ANTHROPIC,)))

    driver.load(compiled(ONE_SLOT + sticky + "agent c was a { }\n"))

    assert driver.end(running) == [next_of_it]


# ---- what is in flight ----


def test_a_call_whose_agent_is_renamed_while_it_runs_has_its_next_attempt_as_that_agent() -> None:
    driver = Driver(compiled(ONE_SLOT + "agent a { concurrency 1 }\n"))
    call = driver.ask(Request(claimed="a", apis=(Api.ANTHROPIC,)))
    driver.load(compiled(ONE_SLOT + "agent b was a { concurrency 1 }\n"))
    driver.load(compiled(ONE_SLOT + "agent c was b { concurrency 1 }\n"))

    driver.end(call, AttemptResult(outcome=Outcome.OVERLOADED, status=529, retry_after_ns=0))
    driver.at(SECOND_NS)

    grant = driver.grant(call)
    assert (grant.attempt, grant.treatment.agent) == (2, "c")


def test_a_renamed_provider_whose_own_money_is_spent_is_asked_by_nobody() -> None:
    settings = 'api anthropic; base "http://127.0.0.1:1"; key env(K)'
    driver = Driver(compiled(f"provider p {{ {settings} }}"))
    call = driver.ask(Request(apis=(Api.ANTHROPIC,)), credential="one")
    driver.load(compiled(f"provider q was p {{ {settings} }}"))

    driver.end(call, AttemptResult(outcome=Outcome.TERMINAL, status=402, committed=True))
    other = driver.ask(Request(apis=(Api.ANTHROPIC,)), credential="another")

    assert driver.refusal(other).reason is Reason.PROVIDER_SPENT


# ---- any history ----


class RenamesMachine(RuleBasedStateMachine):
    @initialize(variant=variants, seed=st.integers(0, 3))
    def start(self, variant: dict[str, Any], seed: int) -> None:
        self.variant = variant
        self.version: dict[str, int] = {}
        first = renaming(variant, {}, {})
        self.as_it_was, self.renamed = Scheduler(first, seed), Scheduler(first, seed)
        self.programs = first, first
        self.now_ns = 0
        self.ids = 0
        self.waiting: dict[CallId, None] = {}
        self.running: dict[CallId, None] = {}

    def post(self, ours: Event, theirs: Event | None = None) -> None:
        commands = self.as_it_was.handle(ours, self.now_ns)
        renamed = self.renamed.handle(theirs or ours, self.now_ns)
        assert [plain(one) for one in renamed] == [plain(one) for one in commands]
        self.are_of_now(renamed)
        self.note(commands)

    def are_of_now(self, what: object) -> None:
        """Nothing is called what it was called once."""
        said = re.findall(r"\b(x[a-z]\d)(q\d+)?", repr(what))
        assert {name + more for name, more in said} <= {name_of(self.version, name) for name in (*NAMES, "xu0", "xu1")}

    def note(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Grant(call_id=call_id):
                    self.waiting.pop(call_id, None)
                    self.running[call_id] = None
                case Reject(call_id=call_id) | Finish(call_id):
                    self.waiting.pop(call_id, None)

    def pick(self, ids: Mapping[CallId, None], pick: int) -> CallId:
        return list(ids)[pick % len(ids)]

    def call(self, told: Mapping[str, Any], version: Mapping[str, int]) -> Call:
        who = None if told["who"] is None else name_of(version, told["who"])
        proven = told["who"] == "xa0"
        request = Request(
            apis=(Api.ANTHROPIC, Api.OPENAI),
            token_agent=who if proven else None,
            claimed=None if proven else who,
            model=told["model"],
            stream=told["stream"],
            tokens_in=100,
            tokens_max_out=400,
            headers={"x-kind": told["kind"]},
        )
        return Call(id=CallId(self.ids), request=request, caller=told["caller"], job=told["job"], again=told["again"])

    # ---- what can happen ----

    @rule(told=calls, times=st.integers(1, 4))
    def arrive(self, told: dict[str, Any], times: int) -> None:
        for _ in range(times):
            self.ids += 1
            self.waiting[CallId(self.ids)] = None
            self.post(CallArrived(self.call(told, {})), CallArrived(self.call(told, self.version)))

    @rule(crowd=st.lists(calls, min_size=3, max_size=8))
    def arrive_together(self, crowd: list[dict[str, Any]]) -> None:
        for told in crowd:
            self.arrive(told, 1)

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 9), ended=ends)
    def end(self, pick: int, ended: AttemptResult) -> None:
        call_id = self.pick(self.running, pick)
        del self.running[call_id]
        if not ended.committed:
            self.waiting[call_id] = None
        self.post(AttemptEnded(call_id, ended))

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 9), remaining=st.integers(0, 6))
    def hear(self, pick: int, remaining: int) -> None:
        reading = QuotaReading(dimension=Dimension.REQUESTS, limit=6, remaining=remaining, resets_ns=20 * SECOND_NS)
        self.post(ResponseStarted(self.pick(self.running, pick), (reading,)))

    @precondition(lambda self: self.waiting)
    @rule(pick=st.integers(0, 9))
    def cancel(self, pick: int) -> None:
        call_id = self.pick(self.waiting, pick)
        del self.waiting[call_id]
        self.post(CallCancelled(call_id))

    @rule(passed_ns=st.sampled_from([1, SECOND_NS, 7 * SECOND_NS, 60 * SECOND_NS]))
    def time_passes(self, passed_ns: int) -> None:
        self.now_ns += passed_ns
        self.post(TimePassed())

    @precondition(lambda self: self.as_it_was.wakeup_ns() is not None)
    @rule()
    def wake_up(self) -> None:
        self.now_ns = max(self.now_ns, self.as_it_was.wakeup_ns() or 0)
        self.post(TimePassed())

    @rule(variant=st.none() | variants, renamed=st.sets(st.sampled_from(NAMES), min_size=1))
    def rename(self, variant: dict[str, Any] | None, renamed: set[str]) -> None:
        before = self.version
        self.variant = variant or self.variant
        self.version = before | {name: before.get(name, 0) + 1 for name in NAMES if name in renamed}
        self.programs = renaming(self.variant, {}, {}), renaming(self.variant, before, self.version)
        self.reload()

    @rule()
    def reload(self) -> None:
        """Again, too: a `was` that has done its work does nothing."""
        self.post(PolicyLoaded(self.programs[0]), PolicyLoaded(self.programs[1]))

    # ---- what must hold ----

    @invariant()
    def they_stand_alike(self) -> None:
        ours, theirs = self.as_it_was.snapshot(), self.renamed.snapshot()
        differs = (ours.program_hash, theirs.program_hash)
        assert plain(theirs).replace(differs[1], "") == plain(ours).replace(differs[0], "")
        self.are_of_now(theirs)
        assert self.as_it_was.wakeup_ns() == self.renamed.wakeup_ns()


TestRenames = pytest.mark.slow(RenamesMachine.TestCase)
TestRenames.settings = settings(max_examples=60)
