"""Runner of a policy's tests: those of calls run here, those of runs in a room that has a simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import final

import attrs

from hivemind_trio.policy.compile.checked import Checked
from hivemind_trio.policy.compile.codegen import SETTINGS
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Diagnostic, Severity
from hivemind_trio.policy.program.call_facts import Facts, literal, shown
from hivemind_trio.policy.program.policy_tests import Expectation, GivenAny, GivenCall, PolicyTest, Run
from hivemind_trio.policy.program.program import Program
from hivemind_trio.policy.solver.decision_lists import rules_of
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.source.string_literals import quote

from .outcomes import Decided, got, is_text, meets
from .prover import Counterexample, NoCall, Proven, Universe, Unproven


@final
@attrs.frozen(kw_only=True)
class RanTest:
    """One test, and what came of it."""

    test: PolicyTest
    diagnostics: tuple[Diagnostic, ...]
    exercised: frozenset[str] = frozenset()
    """Rules that decided something for one of its calls."""
    seconds: float | None = None
    """Duration; None: not measured."""

    @property
    def failed(self) -> bool:
        """True if an expectation is not met, or was not decided in time."""
        return any(one.severity is Severity.ERROR for one in self.diagnostics)


def run_tests(
    checked: Checked, *, coverage: bool = False, clock: Callable[[], float] | None = None
) -> tuple[RanTest, ...]:
    """Run the tests about calls of a policy without errors; nothing for one with any.

    Args:
        coverage: Find out which rules they exercise, which takes as long again.
        clock: Seconds, since whenever; None: it does not matter what they take.
    """
    if checked.program is None:
        return ()
    tests = [test for test in checked.tests if not isinstance(test.asks, Run)]
    about_all = any(isinstance(ask, GivenAny) for test in tests for ask in asks_of(test))
    universe = Universe.of(checked) if about_all else None
    ran: list[RanTest] = []
    for test in tests:
        began_s = clock() if clock is not None else 0.0
        one = _Testing(checked, checked.program, universe, test, coverage).tested()
        ran.append(one if clock is None else attrs.evolve(one, seconds=clock() - began_s))
    return tuple(ran)


def with_tests(checked: Checked, tested: Iterable[RanTest]) -> Checked:
    """Return the policy with what its tests have found, as far as its author has not allowed it."""
    found = [diagnostic for one in tested for diagnostic in one.diagnostics]
    return with_findings(checked, found)


def with_findings(checked: Checked, found: Iterable[Diagnostic]) -> Checked:
    """Return the policy with more findings, in the order of the text, as far as its author has not allowed them."""
    allowed = {(allow.code, allow.span.source, allow.line) for allow in checked.allows}
    kept = [
        one
        for one in found
        if one.severity is Severity.ERROR or (one.code, one.span.source, _line(checked, one.span)) not in allowed
    ]
    every = sorted([*checked.diagnostics, *kept], key=lambda one: (one.span.source, one.span.start, one.code))
    return attrs.evolve(checked, diagnostics=tuple(every))


def unexercised(checked: Checked, tested: Sequence[RanTest]) -> tuple[Diagnostic, ...]:
    """HM311 for each rule that decided nothing for any call of any test."""
    report = DiagnosticCollector(checked.sources)
    exercised = frozenset[str]().union(*(one.exercised for one in tested))
    for name, declared in checked.declarations.of("rule").items():
        if name not in exercised:
            report.add(
                "HM311",
                f"no test exercises rule `{name}`",
                declared.name_span,
                severity=Severity.INFO,
                help="add a test that fails without it; `hivemind-trio explain` shows what decides a call",
            )
    return tuple(report.found)


def decided_by_rules(checked: Checked, decided: Decided) -> Iterator[str]:
    """Yield the rules that decide, or say, something of a call."""
    counts = ("verdict",) if decided.why_denied else SETTINGS
    for setting, decider in decided.treatment.decided.items():
        if decider.kind == "rule" and setting in counts:
            yield decider.name
    for rule in rules_of(checked):
        if (rule.tags or rule.warnings) and decided.asked(rule.condition):
            yield rule.name


def asks_of(test: PolicyTest) -> tuple[GivenCall | GivenAny, ...]:
    """Return the calls that it asks about."""
    return () if isinstance(test.asks, Run) else test.asks


def given_text(facts: Facts, program: Program) -> str:
    """`given { agent ci; hour 22 }`: to be pasted into a test."""
    parts = []
    for field, value in shown(facts, [program]).items():
        match value:
            case bool():
                parts.append(f"{field} {str(value).lower()}")
            case _ if is_text(field):
                parts.append(f"{field} {quote(literal(field, value))}")
            case _:
                parts.append(f"{field} {literal(field, value)}")
    return f"given {{ {'; '.join(parts)} }}" if parts else "given { }"


def _line(checked: Checked, span: Span) -> int:
    return checked.sources[span.source].text.count("\n", 0, span.start)


@final
@attrs.define(eq=False)
class _Testing:
    """One test about calls."""

    _checked: Checked
    _program: Program
    _universe: Universe | None
    """Space of all calls, for tests that ask about them."""
    _test: PolicyTest
    _coverage: bool
    _report: DiagnosticCollector = attrs.field(init=False)
    _exercised: set[str] = attrs.field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        self._report = DiagnosticCollector(self._checked.sources)

    def tested(self) -> RanTest:
        for ask in asks_of(self._test):
            match ask:
                case GivenCall(facts=facts):
                    decided = Decided.of(self._program, facts)
                    self._one(decided)
                    self._exercised.update(decided_by_rules(self._checked, decided))
                case GivenAny():
                    self._all(ask)
        return RanTest(test=self._test, diagnostics=tuple(self._report.found), exercised=frozenset(self._exercised))

    def _one(self, decided: Decided) -> None:
        for expected in self._test.expects:
            if not meets(expected.condition, decided.values):
                self._fails(expected, decided, "")

    def _all(self, ask: GivenAny) -> None:
        universe = self._universe
        assert universe is not None
        for expected in self._test.expects:
            match universe.judge(ask.condition, expected.condition):
                case Counterexample(facts=facts, decided=decided):
                    self._fails(expected, decided, given_text(facts, self._program))
                case NoCall():
                    self._report.warn(
                        "HM502",
                        f"test `{self._test.name}` matches no call that a provider serves",
                        ask.span,
                        help="this test cannot fail; change the condition",
                    )
                case Unproven(tried=tried):
                    self._report.add(
                        "HM390",
                        "cannot prove this for every call: the conditions are too complex; "
                        f"it holds for the {tried} calls tried",
                        expected.span,
                        severity=Severity.INFO,
                        help="simpler conditions could be checked",
                    )
                case Proven():
                    pass
        if self._coverage:
            rules = [rule for rule in rules_of(self._checked) if rule.name not in self._exercised]
            self._exercised.update(rule.name for rule in rules if universe.exercises(rule, ask.condition))

    def _fails(self, expected: Expectation, decided: Decided, counterexample: str) -> None:
        note, labels = got(expected.condition, decided, self._checked.declarations)
        self._report.add(
            "HM501",
            f"test `{self._test.name}` fails" + (": it does not hold for every call" if counterexample else ""),
            expected.span,
            note=f"got {note}",
            labels=labels,
            help=f"counterexample: `{counterexample}`" if counterexample else "",
        )
