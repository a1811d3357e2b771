"""Reachability of rules and conditions over all calls: HM301 to HM306, and HM390 where it is unknown.

Rules are read from top to bottom and the first that matches and names a setting decides it. So a setting of a rule
never takes effect exactly if every call that the rule matches is decided before, by the rules above that name it, or
is refused by any rule. That is a question of whether some boxes cover others (`solver/satisfiability.py`,
`solver/box_cover.py`), and the boxes that the proof needs are the rules that a finding names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Final, final

import attrs

from hivemind_trio.policy.compile.binder import BoundDeclaration, SymbolTable
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector, ProgressListener, untold
from hivemind_trio.policy.diagnostics.diagnostic import Fix, Label, Severity
from hivemind_trio.policy.language.condition_typing import AllOf, AnyOf, Condition, Negation, Relation
from hivemind_trio.policy.program.program import Program
from hivemind_trio.policy.solver.box_cover import Cover, Covered, Cube, Entangled, bits
from hivemind_trio.policy.solver.call_space import CallSpace
from hivemind_trio.policy.solver.satisfiability import Space, common
from hivemind_trio.policy.source.edits import deletion
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.ast import And, Expr, Name, Not, Or

NAMED_MAX: Final = 8
"""Rules that a finding points at."""


AGENT_SETTINGS: Final = ("lane", "priority")
"""Settings that an agent gives its calls where no rule does."""
PAIRS_MAX: Final = 250_000
"""Pairs of a rule that denies and one above it that allows, compared over a whole policy: a second or so."""


class Truth(Enum):
    """When a condition holds."""

    NEVER = auto()
    ALWAYS = auto()
    SOMETIMES = auto()
    UNKNOWN = auto()


def analyse(
    declarations: SymbolTable,
    conditions: Mapping[str, Mapping[str, Condition | None]],
    program: Program,
    progress: ProgressListener = untold,
) -> None:
    """Report what can never happen in a policy without errors."""
    conditions = {kind: conditions[kind] for kind in ("agent", "team", "rule", "budget")}
    asked = [one for table in conditions.values() for one in table.values() if one is not None]
    asked += [Relation("team", "==", name) for name, one in conditions["team"].items() if one is not None]
    if not asked:
        return
    progress("dividing calls", 0, 1)
    space = Space.of([CallSpace.of(program, conditions)], asked)
    constants = _Constants(declarations, space)
    named = [(kind, name, one) for kind, table in conditions.items() for name, one in table.items()]
    never: set[tuple[str, str]] = set()
    for number, (kind, name, one) in enumerate(named):
        progress("judging conditions", number, len(named))
        if constants.judge(kind, name, one) is Truth.NEVER:
            never.add((kind, name))
    _identities(declarations, conditions["agent"], space, never, progress)
    _teams(declarations, conditions["team"], space, never)
    rules = [
        _Rule.of(declared, conditions["rule"][name], space, is_never=("rule", name) in never)
        for name, declared in declarations.of("rule").items()
    ]
    judged = _Rules(declarations.report, space, rules)
    judged.report_all(progress)
    judged.report_agents(declarations, {name for kind, name in never if kind == "agent"}, progress)


# ---- conditions ----


@final
@attrs.frozen
class _Constants:
    """Looks for the smallest parts of a condition that are always the same."""

    declarations: SymbolTable
    space: Space
    _known: dict[Condition, Truth] = attrs.field(init=False, factory=dict)
    """Conditions that were asked about: most parts are in many rules."""

    def judge(self, kind: str, name: str, condition: Condition | None) -> Truth:
        """Report what is constant in the condition of a declaration; when the whole holds."""
        expr = self.declarations.of(kind)[name].when
        if condition is None or expr is None:
            return Truth.SOMETIMES
        return self._judge(expr, condition, f"{kind} `{name}`", whole=True)[0]

    def _judge(self, expr: Expr, condition: Condition, whose: str, *, whole: bool) -> tuple[Truth, frozenset[Truth]]:
        """Return when it holds, and what has been reported of its parts or of itself."""
        told = frozenset[Truth]().union(
            *(self._judge(part, one, whose, whole=False)[1] for part, one in self._parts(expr, condition))
        )
        truth = self._truth(condition)
        # A part that is always true is no reason for a whole that never is.
        if told and (truth is not Truth.NEVER or Truth.NEVER in told):
            return truth, told
        report = self.declarations.report
        what = f"the condition of {whose}" if whole else "this"
        match truth:
            case Truth.NEVER:
                report.warn("HM301", f"{what} is never true", expr.span, help="no call matches it")
            case Truth.ALWAYS:
                report.warn("HM302", f"{what} is always true", expr.span, help="every call matches it")
            case _:
                return truth, told
        return truth, told | {truth}

    def _truth(self, condition: Condition) -> Truth:
        found = self._known.get(condition)
        if found is None:
            found = self._known[condition] = self._searched(condition)
        return found

    def _searched(self, condition: Condition) -> Truth:
        boxes = self.space.cubes(condition)
        if boxes is None:
            return Truth.UNKNOWN
        if not self.space.is_met(boxes):
            return Truth.NEVER
        if self.space.is_met_always(condition):
            return Truth.ALWAYS
        return Truth.SOMETIMES

    def _parts(self, expr: Expr, condition: Condition) -> Iterator[tuple[Expr, Condition]]:
        match expr, condition:
            case (And(items=exprs), AllOf(items=items)) | (Or(items=exprs), AnyOf(items=items)):
                yield from zip(exprs, items, strict=True)
            case Not(item=inner), Negation(item=item):
                yield inner, item
            case Name(text=text), _ if text in self.declarations.lets:
                yield self.declarations.lets[text], condition
            case _:
                return


# ---- agents ----


def _identities(
    declarations: SymbolTable,
    conditions: Mapping[str, Condition | None],
    space: Space,
    never: set[tuple[str, str]],
    progress: ProgressListener,
) -> None:
    """Agents whose condition makes no caller that agent."""
    if all(one is None for one in conditions.values()):
        return
    agents = declarations.of("agent")
    cubes: list[Cube] = []
    boxes = {name: None if one is None else space.cubes(one) for name, one in conditions.items()}
    own = {name: _numbered(cubes, boxes[name] or ()) for name in agents}
    cover = space.cover(cubes)
    earlier: dict[str, int] = {}
    for number, (name, declared) in enumerate(agents.items()):
        progress("comparing agents", number, len(agents))
        condition, starts = conditions[name], boxes[name]
        if condition is None or declared.when is None or ("agent", name) in never:
            continue
        token = declarations.one(declared, "token")
        if token is not None:
            declarations.report.add(
                "HM306",
                f"agent `{name}` is identified by its token, so its `when` is ignored",
                declared.when.span,
                severity=Severity.WARNING,
                labels=(Label(token.span, "the token identifies the agent"),),
                help="delete the `when`, or the token",
            )
            continue
        if starts is not None and space.is_covered(starts, cover, sum(earlier.values())):
            first = _needed(space, cover, starts, earlier)
            declarations.report.add(
                "HM306",
                f"agent `{name}` never matches: earlier agents match the same callers",
                declared.when.span,
                severity=Severity.WARNING,
                labels=tuple(Label(agents[one].name_span, "matches first") for one in first),
                help="move it up, or narrow the conditions of the earlier agents",
            )
        earlier[name] = own[name]


def _teams(
    declarations: SymbolTable, conditions: Mapping[str, Condition | None], space: Space, never: set[tuple[str, str]]
) -> None:
    """Report teams whose condition puts no call in them."""
    for name, declared in declarations.of("team").items():
        if conditions[name] is None or declared.when is None or ("team", name) in never:
            continue
        boxes = space.cubes(Relation("team", "==", name))
        if boxes is not None and not space.is_met(boxes):
            declarations.report.warn(
                "HM306",
                f"team `{name}` never matches: every call that meets its condition is in another team",
                declared.when.span,
                help="move it above the teams that match first; an agent's own `team` comes before all of them",
            )


def _needed(space: Space, cover: Cover, starts: Sequence[Cube], earlier: dict[str, int]) -> list[str]:
    """Return the earlier agents without which some caller would be left."""
    kept = dict(earlier)
    for name in reversed(earlier):
        without = sum(one for other, one in kept.items() if other != name)
        if space.is_covered(starts, cover, without):
            del kept[name]
    return list(kept)[:NAMED_MAX]


# ---- rules ----


@final
@attrs.frozen
class _Rule:
    """A rule, as boxes."""

    declared: BoundDeclaration
    condition: Condition
    boxes: Sequence[Cube] | None
    """None: too many."""
    spans: Mapping[str, Span]
    """Setting -> place where it is decided."""
    is_never: bool

    @classmethod
    def of(cls, declared: BoundDeclaration, condition: Condition | None, space: Space, *, is_never: bool) -> _Rule:
        assert condition is not None  # the policy has no errors
        spans = {
            "verdict" if name in ("allow", "hold", "deny") else name: given[0].item.span
            for name, given in declared.settings.items()
            if name not in ("tag", "warn")
        }
        return cls(declared, condition, space.cubes(condition), spans, is_never)

    @property
    def denies(self) -> bool:
        return "deny" in self.declared.settings

    @property
    def says_more(self) -> bool:
        """True if it acts on every call that matches, whatever other rules do."""
        return "tag" in self.declared.settings or "warn" in self.declared.settings

    def same_as(self, other: _Rule) -> bool:
        """Return True if both give the same settings the same values."""
        return _values(self.declared) == _values(other.declared)


def _values(declared: BoundDeclaration) -> dict[str, list[object]]:
    return {name: [(one.args, dict(one.options)) for one in given] for name, given in declared.settings.items()}


@final
@attrs.define(eq=False)
class _Rules:
    """The rules of a policy, in order."""

    _report: DiagnosticCollector
    _space: Space
    _rules: Sequence[_Rule]
    _cover: Cover = attrs.field(init=False)
    _own: list[int] = attrs.field(init=False, factory=list)
    """Boxes of each rule, as bits."""
    _refused: list[int] = attrs.field(init=False, factory=list)
    """Boxes of refused calls of each rule, unless a rule above exempts them."""

    _pairs: int = attrs.field(init=False, default=0)
    """Rules that deny, each with every rule above that allows, as far as they were compared."""
    _whose: list[int] = attrs.field(init=False, factory=list)
    """Rule of each box."""

    def __attrs_post_init__(self) -> None:
        cubes: list[Cube] = []
        allowing: list[_Rule] = []
        for number, rule in enumerate(self._rules):
            own = _numbered(cubes, rule.boxes or ())
            self._own.append(own)
            self._refused.append(own if rule.denies else 0)
            if rule.denies and allowing:
                self._refused[-1] = _numbered(cubes, self._without(rule, allowing))
            if "allow" in rule.declared.settings:
                allowing.append(rule)
            self._whose += [number] * (len(cubes) - len(self._whose))
        self._cover = self._space.cover(cubes)

    def _without(self, rule: _Rule, allowing: Sequence[_Rule]) -> Sequence[Cube]:
        """Return the calls that a rule refuses.

        None where they fall into too many boxes: it is then taken to refuse less.
        """
        self._pairs += len(allowing)
        if self._pairs > PAIRS_MAX:
            return ()
        exempt = [
            Negation(one.condition)
            for one in allowing
            if one.boxes is None
            or any(common(box, other) is not None for box in rule.boxes or () for other in one.boxes)
        ]
        return self._space.cubes(AllOf((rule.condition, *exempt))) or ()

    def report_all(self, progress: ProgressListener = untold) -> None:
        unknown: list[_Rule] = []
        above: dict[str, int] = {}
        denied = 0
        for one in self._refused:
            denied |= one
        for number, rule in enumerate(self._rules):
            progress("comparing rules", number, len(self._rules))
            if not rule.is_never:
                try:
                    self._judge(number, above, denied)
                except Entangled:
                    unknown.append(rule)
            for setting in rule.spans:
                above[setting] = above.get(setting, 0) | self._own[number]
        if unknown:
            first = unknown[0].declared
            also = f", and so for {len(unknown) - 1} below it" if len(unknown) > 1 else ""
            self._report.add(
                "HM390",
                f"cannot determine whether rule `{first.name}` is reachable{also}: its conditions are too complex",
                first.name_span,
                severity=Severity.INFO,
                help="this is no error; simpler conditions could be checked",
            )

    def report_agents(self, declarations: SymbolTable, never: set[str], progress: ProgressListener = untold) -> None:
        """Report what agents say of their calls and rules decide for each of them.

        Args:
            never: Agents that no caller is.
        """
        denied = 0
        for one in self._refused:
            denied |= one
        users: dict[Span, tuple[str, list[BoundDeclaration]]] = {}
        values: dict[Span, tuple[object, ...]] = {}
        for name, declared in declarations.of("agent").items():
            for setting in AGENT_SETTINGS:
                given, _ = declarations.effective(declared, setting)
                if given and name not in never:
                    users.setdefault(given[0].item.span, (setting, []))[1].append(declared)
                    values[given[0].item.span] = given[0].args
        among = {setting: denied | self._deciding_boxes(setting) for setting in AGENT_SETTINGS}
        for number, (span, (setting, agents)) in enumerate(users.items()):
            progress("comparing agents and rules", number, len(users))
            by: set[int] = set()
            for declared in agents:
                deciding = self._deciding(declared.name, among[setting])
                if deciding is None:
                    break
                by.update(deciding)
            else:
                told = [self._rules[one].declared.settings.get(setting, []) for one in by]
                if all(given[0].args == values[span] for given in told if given):
                    continue  # the rules say the same, so nothing is other than it looks
                owner = f"agent `{agents[0].name}`" if len(agents) == 1 else f"{len(agents)} agents"
                self._report.add(
                    "HM304",
                    f"`{self._report.text(span)}` of {owner} never takes effect",
                    span,
                    severity=Severity.WARNING,
                    labels=self._labels(len(self._rules), {one: [setting] for one in by}),
                    help="rules decide it for every call of the agent; delete it, or narrow the rules",
                )

    def _deciding_boxes(self, setting: str) -> int:
        """Return the boxes of all rules that decide a setting."""
        among = 0
        for number, rule in enumerate(self._rules):
            if setting in rule.spans and rule.boxes is not None:
                among |= self._own[number]
        return among

    def _deciding(self, agent: str, among: int) -> Sequence[int] | None:
        """Return the rules that decide a setting of every call of an agent; None if that is not certain.

        Args:
            among: Boxes of the rules that decide the setting.
        """
        boxes = self._space.cubes(Relation("agent", "==", agent))
        boxes = [{}] if boxes is None else boxes  # no condition tells agents apart, so no rule does
        try:
            by = self._covered(boxes, among) if boxes and among else None
        except Entangled:
            return None
        if by is None:
            return None
        some = sorted({self._whose[bit] for bit in bits(by) if bit < len(self._whose)})
        groups = [(self._own[one] | self._refused[one]) & among for one in some]
        try:
            return [some[one] for one in self._cover.fewest(boxes, by, groups)]
        except Entangled:
            return some

    def _judge(self, number: int, above: Mapping[str, int], denied: int) -> None:
        rule = self._rules[number]
        if rule.boxes is None:
            raise Entangled
        dead: dict[str, list[int]] = {}
        for setting in rule.spans:
            among = above.get(setting, 0) | (0 if setting == "verdict" else denied)
            by = self._covered(rule.boxes, among)
            if by is not None:
                some = sorted({self._whose[bit] for bit in bits(by) if bit < len(self._whose)})
                groups = [(self._own[one] | self._refused[one]) & among for one in some]
                dead[setting] = [some[one] for one in self._cover.fewest(rule.boxes, by, groups)]
        if len(dead) == len(rule.spans) and not rule.says_more:
            self._dead(number, dead)
            return
        for setting, by_rules in dead.items():
            self._report.add(
                "HM304",
                f"`{self._report.text(rule.spans[setting])}` of rule `{rule.declared.name}` never takes effect",
                rule.spans[setting],
                severity=Severity.WARNING,
                labels=self._labels(number, {one: [setting] for one in by_rules}),
                help="earlier rules decide it for every call that the rule matches; delete it, or move the rule up",
            )

    def _covered(self, boxes: Sequence[Cube], among: int) -> int | None:
        """Cubes that cover all boxes; None: none do."""
        used = 0
        among |= self._space.impossible(self._cover)
        for box in boxes:
            found = self._cover.search(box, among)
            if not isinstance(found, Covered):
                return None
            used |= found.by
        return used

    def _dead(self, number: int, dead: Mapping[str, Sequence[int]]) -> None:
        rule = self._rules[number]
        settings: dict[int, list[str]] = {}
        for setting, by_rules in dead.items():
            for one in by_rules:
                settings.setdefault(one, []).append(setting)
        if not rule.spans:
            self._report.warn(
                "HM303",
                f"rule `{rule.declared.name}` has no effect: it has no settings",
                rule.declared.name_span,
                help="give it a `lane`, a `priority` or another setting, or delete it",
                fix=self._deleted(rule.declared),
            )
        elif len(settings) == 1 and self._is_double(number, (other := next(iter(settings)))):
            first = self._rules[other].declared
            self._report.add(
                "HM305",
                f"rule `{rule.declared.name}` duplicates rule `{first.name}`",
                rule.declared.name_span,
                severity=Severity.WARNING,
                labels=(Label(first.name_span, "the same calls, the same settings"),),
                help="delete one of them",
                fix=self._deleted(rule.declared),
            )
        else:
            verb = "reject" if all(map(self._refuses, settings)) else "decide"
            self._report.add(
                "HM303",
                f"rule `{rule.declared.name}` has no effect",
                rule.declared.name_span,
                severity=Severity.WARNING,
                note=f"earlier rules {verb} every call that it matches",
                labels=self._labels(number, settings),
                help="move it up, narrow the earlier rules, or delete it",
            )

    def _deleted(self, declared: BoundDeclaration) -> Fix:
        """Return the fix that deletes a rule. It is unsafe: tests, logs and dashboards may name the rule."""
        span = declared.item.span
        return Fix((deletion(self._report.sources[span.source].text, span),), is_safe=False)

    def _refuses(self, number: int) -> bool:
        """Return True if it only refuses calls."""
        rule = self._rules[number]
        return set(rule.spans) == {"verdict"} and "hold" not in rule.declared.settings

    def _is_double(self, number: int, other: int) -> bool:
        """Return True if an earlier rule that covers this one is for the same calls and says the same."""
        rule, first = self._rules[number], self._rules[other]
        return rule.same_as(first) and self._covered(first.boxes or (), self._own[number]) is not None

    def _labels(self, of: int, settings: Mapping[int, Sequence[str]]) -> tuple[Label, ...]:
        """Return the places that decide the settings of a rule, rule by rule."""
        labels: list[Label] = []
        for number in sorted(settings)[:NAMED_MAX]:
            rule = self._rules[number]
            decides = number < of and any(setting in rule.spans for setting in settings[number])
            more = len(settings) - NAMED_MAX if len(labels) == NAMED_MAX - 1 else 0
            text = "decided here" if decides else "rejected here"
            labels.append(Label(rule.declared.name_span, f"{text}, and by {more} more rules" if more > 0 else text))
        return tuple(labels)


def _numbered(cubes: list[Cube], more: Sequence[Cube]) -> int:
    """Append cubes; which they are."""
    numbers = ((1 << len(more)) - 1) << len(cubes)
    cubes.extend(more)
    return numbers
