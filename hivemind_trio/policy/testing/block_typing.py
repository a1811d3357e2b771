"""Type checker of `test` blocks: names, fields and values, and the typed test (`program/policy_tests.py`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, final

import attrs

from hivemind_trio.dialects import ERROR_STATUSES
from hivemind_trio.model import Api, PlanSpan
from hivemind_trio.model.addresses import LOOPBACK
from hivemind_trio.model.plan import DAY_NS, WHOLE
from hivemind_trio.policy.compile.binder import BoundDeclaration, SymbolTable
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector
from hivemind_trio.policy.diagnostics.diagnostic import Fix, Severity
from hivemind_trio.policy.language.condition_typing import (
    AllOf,
    Always,
    AnyOf,
    Condition,
    Field,
    Flag,
    Kind,
    Member,
    Negation,
    Relation,
    Typer,
)
from hivemind_trio.policy.language.synonyms import in_words
from hivemind_trio.policy.language.values import ErrorType, Signal, Unreadable
from hivemind_trio.policy.program.call_facts import CLOCKS, DAYS, NO_API, Facts, contradiction, day_of
from hivemind_trio.policy.program.policy_tests import (
    Arriving,
    Behaving,
    Expectation,
    Failing,
    Fault,
    FaultOf,
    GivenAny,
    GivenCall,
    PlanDeclared,
    PolicyTest,
    Run,
)
from hivemind_trio.policy.schema import TEST_STATEMENTS, Slot, Type
from hivemind_trio.policy.syntax.ast import Expect, Item, Let, Name, Value

from .outcomes import leaves

OUTCOMES: Final = ("admitted", "held", "denied")

LOAD: Final[Mapping[str, Slot]] = {
    "agent": Slot(Type.REF, ("agent",)),
    "model": Slot(Type.TEXT),
    "tokens.in": Slot(Type.COUNT),
    "tokens.out": Slot(Type.COUNT, least=1),
    "arrive": Slot(Type.COUNT_RATE, least=1),
    "turns": Slot(Type.COUNT, least=1),
    "grow": Slot(Type.COUNT),
}
"""Settings of `load NAME { ... }`, beside some fields of a request."""

_LOAD_FIELDS: Final = ("stream", "path", "client.address", *CLOCKS, *DAYS)
"""Fields of a request that a load may set, and headers."""

FURTHER: Final = {"arrive": ": calls arrive as long as the test runs, which `run 2m` says"}
"""Why statements of a test take one argument, where a second is likely."""

FOLLOWING: Final = {
    "team": "it follows from the agent, or from the `when` of a team: `agent ...`",
    "provider": "it follows from the model: `model ...`",
    "tokens.total": "give `tokens.in` and `tokens.max-out`",
    "cost": "it follows from the model's price and the tokens",
}
"""Fields that a `given` cannot set, and what to set instead."""

WAITS: Final = ("p50", "p95", "p99", "max", "mean")

SHARES: Final = ("failed", "denied", "completed", "held")
"""Shares of a load."""

FAILING: Final = ("connect", "reset", "429", "502", "503", "529")
"""Failures and statuses with which a simulated provider can fail."""

FAILING_STATUSES: Final = (429, 500, 502, 503, 504, 529)
"""The same of errors that are named by their type."""

UNNAMED_STATUS: Final = 500
"""Status of an error whose type is of no dialect."""

LENGTH_NS: Final = 600 * 10**9
"""Default length of a run."""
LENGTH_MAX_NS: Final = 14 * DAY_NS

NODES_MAX: Final = 64
"""Most nodes of a run."""

RUN_OPTIONS: Final[Mapping[str, Slot]] = {"seed": Slot(Type.COUNT), "nodes": Slot(Type.COUNT, least=1)}
"""Options of `run`."""

FAULTS: Final[Mapping[FaultOf, str]] = {
    FaultOf.STORE: "fault store from 3m to 4m",
    FaultOf.NODE: "fault node 2 from 5m",
    FaultOf.LINK: "fault link 2 from 3m to 4m",
}
"""Subjects of `fault`, with an example."""

PLAN_OPTIONS: Final[Mapping[str, Slot]] = {
    "tokens": Slot(Type.COUNT, least=1),
    "used": Slot(Type.RATIO),
    "every": Slot(Type.DURATION, least=1),
    "resets": Slot(Type.DURATION, least=1),
}
"""Options of `plan` of an `upstream`."""

PLAN_MEASURES: Final = ("max", "unused")
"""Shares of a plan's window that a run has."""

PLAN_FIELDS: Final = frozenset(f"plan.{span}.{measure}" for span in PlanSpan for measure in PLAN_MEASURES)

UPSTREAM: Final = ("latency", "fail", "plan")
"""Settings of `upstream`."""


def check_test(
    test: BoundDeclaration, declarations: SymbolTable, fields: Mapping[str, Field], names: Mapping[str, list[str]]
) -> PolicyTest | None:
    """Report what is wrong in one test; None if anything is."""
    return _Reading(test, declarations, fields, names).read()


def outcome_fields(names: Mapping[str, list[str]]) -> dict[str, Field]:
    """Return the fields of an `expect` beside a call's own. `tag.NAME`, `budget.NAME`, `account.NAME`: see `flag`."""
    fields = [
        *(Field(name, Kind.FLAG) for name in OUTCOMES),
        Field("lane", Kind.ENUM, tuple(dict.fromkeys((*names["lane"], "default")))),
        Field("retry", Kind.ENUM, tuple(dict.fromkeys((*names["retry"], "default")))),
        Field("priority", Kind.NUMBER),
        Field("deadline", Kind.DURATION),
        Field("max-output", Kind.NUMBER),
    ]
    return {field.name: field for field in fields}


def _each(signal: Signal) -> Iterator[str | int]:
    """Yield the failure, or each status; an error type has neither."""
    match signal:
        case str():
            yield signal
        case range():
            yield from signal


@final
@attrs.define(eq=False)
class _Reading:
    """One test."""

    _test: BoundDeclaration
    _all: SymbolTable
    _fields: Mapping[str, Field]
    _names: Mapping[str, list[str]]
    _asks: list[GivenCall | GivenAny] = attrs.field(init=False, factory=list)
    _loads: dict[str, Arriving | None] = attrs.field(init=False, factory=dict)
    """Name -> what was read; None: it has mistakes."""
    _upstreams: list[Behaving] = attrs.field(init=False, factory=list)
    _run: tuple[int, Mapping[str, int]] | None = attrs.field(init=False, default=None)
    """Length and options."""
    _faults: list[Fault] = attrs.field(init=False, factory=list)
    _expects: list[Expectation] = attrs.field(init=False, factory=list)

    def read(self) -> PolicyTest | None:
        report, before = self._report, len(self._report.found)
        block = self._test.item.block
        statements = block.statements if block is not None else ()
        about_run = [one for one in statements if _is(one, "load", "upstream", "fault", "run")]
        about_calls = [one for one in statements if _is(one, "given")]
        self._loads = {name.text: None for one in about_run if (name := _load_name(one)) is not None}
        expected = self._typer_of_run() if about_run else self._typer_of_calls()
        expects = 0
        for statement in statements:
            match statement:
                case Expect(value=value):
                    expects += 1
                    condition = expected.condition(value)
                    if condition is not None:
                        self._expects.append(Expectation(condition=self._by_place(condition), span=value.span))
                case Let(span=span):
                    report.add("HM103", "`let` is not allowed here", span, help="it belongs at the top level of a file")
                case Item():
                    self._item(statement)
        if not expects:
            report.add("HM502", "this test expects nothing", self._test.name_span, help="add `expect ...`")
        elif about_calls and about_run:
            report.add(
                "HM502",
                "this test mixes calls and a run",
                about_run[0].span,
                help="split it: one test with `given`, one with `load`",
            )
        elif about_run:
            self._unplanned()
            if self._run is not None or not any(_is(one, "run") for one in about_run):
                self._check_faults()
        elif not about_calls:
            what = "`given { ... }`, `given any when ...` or `load NAME { ... }`"
            report.add("HM502", "this test has no calls and no run", self._test.name_span, help=f"add {what}")
        self._check_times()
        whole = (
            expects == len(self._expects) and len(about_calls) == len(self._asks) and None not in self._loads.values()
        )
        # What is wrong with a `let` may have been told before, of another test.
        wrong = not whole or any(found.severity is Severity.ERROR for found in report.found[before:])
        return None if wrong else self._typed()

    def _typed(self) -> PolicyTest:
        loads = tuple(one for one in self._loads.values() if one is not None)
        length_ns, said = self._run or (LENGTH_NS, {})
        run = Run(
            loads=loads,
            upstreams=tuple(self._upstreams),
            length_ns=length_ns,
            seed=said.get("seed", 1),
            nodes=said.get("nodes", 1),
            faults=tuple(self._faults),
        )
        return PolicyTest(
            name=self._test.name,
            span=self._test.name_span,
            at=self._test.at,
            asks=run if loads else tuple(self._asks),
            expects=tuple(self._expects),
        )

    @property
    def _report(self) -> DiagnosticCollector:
        return self._all.report

    def _item(self, statement: Item) -> None:
        match statement:
            case Item(head=Name(text="given"), args=(Name(text="any"),)):
                self._given_any(statement)
            case Item(head=Name(text="given")):
                self._given(statement)
            case Item(head=Name(text="load")):
                self._load(statement)
            case Item(head=Name(text="upstream")):
                self._upstream(statement)
            case Item(head=Name(text="fault")):
                self._fault(statement)
            case Item(head=Name(text="run")):
                self._length(statement)
            case Item(head=Name(text="assert" | "should" | "then" as word, span=span)):
                what = f"`test` has no statement `{word}`"
                self._report.add("HM102", what, span, help="write `expect`", replacement="expect")
            case Item(head=head):
                self._report.unknown(
                    "HM102", "`test` has no statement", head.text, head.span, [*TEST_STATEMENTS, "expect"]
                )

    # ---- what an expect can ask ----

    def _typer_of_calls(self) -> Typer:
        lets, used = self._all.lets, self._all.reader.used
        tags = {
            given.value
            for rule in self._all.of("rule").values()
            for given in rule.settings.get("tag", ())
            if given.args
        }

        known: Mapping[str, Collection[str]] = {
            "tag": tags,
            "budget": self._names["budget"],
            "account": {account for _, account, _ in self._accounts()},
        }

        def flag(name: str) -> Field | None:
            family, _, rest = name.partition(".")
            return Field(name, Kind.FLAG) if rest in known.get(family, ()) else None

        fields = {**self._fields, **outcome_fields(self._names)}
        names = [f"{family}.{name}" for family, each in known.items() for name in sorted(each)]
        return Typer(self._report, fields, lets, used, dynamic=flag, dynamic_names=names)

    def _accounts(self) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Yield provider, name and lanes of each account; without lanes it is for all."""
        for provider, declared in self._all.of("provider").items():
            for given in self._all.effective(declared, "account")[0]:
                yield provider, given.value, [lane for named in given.block.get("for", ()) for lane in named.value]

    def _by_place(self, condition: Condition) -> Condition:
        """Return an expectation with what `account.NAME` means: where the call goes, and by which lane."""
        match condition:
            case AllOf(items=items):
                return AllOf(tuple(map(self._by_place, items)))
            case AnyOf(items=items):
                return AnyOf(tuple(map(self._by_place, items)))
            case Negation(item=item):
                return Negation(self._by_place(item))
            case Flag(field=field) if field.startswith("account."):
                places: list[Condition] = []
                for provider, account, lanes in self._accounts():
                    if account == field.removeprefix("account."):
                        there = Relation("provider", "==", provider)
                        places.append(AllOf((there, Member("lane", tuple(lanes), ()))) if lanes else there)
                return AnyOf(tuple(places))
            case _:
                return condition

    def _typer_of_run(self) -> Typer:
        lets, used = self._all.lets, self._all.reader.used
        return Typer(self._report, self._examples(), lets, used, of_request=False, dynamic=self._measured)

    def _measured(self, name: str) -> Field | None:
        """Return the field of a measurement: `people.wait.p95`, `anthropic.breaker.opened`."""
        owner, _, what = name.partition(".")
        if owner in self._loads:
            if what in {f"wait.{part}" for part in WAITS}:
                return Field(name, Kind.DURATION)
            if what in SHARES:
                return Field(name, Kind.RATIO)
        if owner in self._names["provider"]:
            return self._measured_at(name, owner, what)
        if owner in self._names["budget"] and what == "spent":
            return Field(name, Kind.MONEY)
        return None

    def _measured_at(self, name: str, provider: str, what: str) -> Field | None:
        """Return the field of a measurement at a provider or one of its accounts: `anthropic.batch.concurrency.max`."""
        accounts = [one for one, owner in self._account_names().items() if owner == provider]
        account = next((one for one in accounts if name.startswith(f"{one}.")), None)
        if account is not None:
            what = name.removeprefix(f"{account}.")
        if what == "breaker.opened" or (what.startswith("status-") and what[7:].isdigit()):
            return Field(name, Kind.NUMBER)
        if accounts and account is None:
            return None  # slots and plans are each account's own
        if what == "concurrency.max":
            return Field(name, Kind.NUMBER)
        return Field(name, Kind.RATIO) if what in PLAN_FIELDS else None

    def _unplanned(self) -> None:
        """Report an `expect` about a plan that no `upstream` declares."""
        declared = {(one.provider, window.span.value) for one in self._upstreams for window in one.plan}
        for expected in self._expects:
            for leaf in leaves(expected.condition):
                provider, found, rest = leaf.field.partition(".plan.")
                span = rest.partition(".")[0]
                owners = {provider, provider.partition(".")[0]}  # what holds for a provider holds for its accounts
                if found and not any((owner, span) in declared for owner in owners):
                    self._report.add(
                        "HM502",
                        f"no `upstream {provider}` of this test declares a plan for `{span}`",
                        expected.span,
                        help=f"add `upstream {provider} {{ plan {span} tokens 20M }}`",
                    )
                    return

    def _examples(self) -> dict[str, Field]:
        """Fields to be shown to whoever asks for one that there is not."""
        names = [f"{load}.{what}" for load in self._loads for what in ("wait.p95", *SHARES)]
        names += [f"{provider}.breaker.opened" for provider in self._names["provider"]]
        names += [f"{account}.concurrency.max" for account in self._account_names()]
        return {name: field for name in names if (field := self._measured(name)) is not None}

    # ---- calls ----

    def _given_any(self, statement: Item) -> None:
        typer = Typer(self._report, self._fields, self._all.lets, self._all.reader.used)
        condition = Always() if statement.when is None else typer.condition(statement.when)
        if statement.block is not None:
            self._report.add(
                "HM112", "`given any` takes no block", statement.block.span, help="write `given any when ...`"
            )
        if condition is not None:
            self._asks.append(GivenAny(condition=condition, span=statement.span))

    def _given(self, statement: Item) -> None:
        if statement.args or statement.when is not None:
            place = statement.args[0].span if statement.args else statement.when.span if statement.when else None
            assert place is not None
            help_, put = "write `given { ... }`, or `given any when ...`", None
            if statement.args and statement.when is None and statement.block is None:
                place = statement.args[0].span.to(statement.args[-1].span)
                put = f"{{ {self._report.text(place)} }}"
                help_ = f"write `{put}`"
            self._report.add("HM112", "`given` needs a block", place, help=help_, replacement=put)
            return
        slots = {name: slot for name, slot in _as_slots(self._fields).items() if name not in FOLLOWING}
        slots["api"] = Slot(Type.WORD, (*(api.value for api in Api), NO_API))
        facts: dict[str, str | int | bool] = {}
        for name, value in self._block(statement, slots, "given"):
            if name != "agent":
                facts[name] = value
            elif value != "unknown":
                declared = self._all.of("agent")[value]
                facts["token" if self._all.one(declared, "token") is not None else "claim"] = value
        self._check_contradiction(facts, statement)
        self._asks.append(GivenCall(facts=facts, span=statement.span))

    def _check_contradiction(self, facts: Facts, statement: Item) -> None:
        if problem := contradiction(facts):
            self._report.add("HM502", f"contradiction: {problem}", statement.span, help="delete one of them")

    def _block(self, statement: Item, slots: Mapping[str, Slot], owner: str) -> Iterator[tuple[str, Any]]:
        """Its fields and their values, as far as they can be read."""
        if statement.block is None:
            self._report.add(
                "HM112", f"`{owner}` needs a block", statement.head.span, help=f"write `{owner} {{ ... }}`"
            )
            return
        seen: set[str] = set()
        for inner in statement.block.statements:
            if not isinstance(inner, Item):
                self._report.add("HM103", "expected a field and its value", inner.span)
                continue
            name = inner.head.text
            family, _, rest = name.partition(".")
            open_ = family in ("header", "meta") and rest
            name = name.lower() if family == "header" else name
            slot = Slot(Type.TEXT) if open_ else slots.get(name)
            if name in seen:
                self._report.add("HM105", f"`{name}` is set twice", inner.head.span)
            elif slot is None and name in FOLLOWING:
                self._report.add("HM502", f"`{name}` cannot be given", inner.head.span, help=FOLLOWING[name])
            elif slot is None:
                known = [*slots, "header.NAME", "meta.NAME"]
                self._report.unknown("HM213", "unknown field", name, inner.head.span, known)
            else:
                found = self._args(inner, [slot])
                if found is not None:
                    yield from self._value(inner, name, slot, found)
            seen.add(name)

    def _value(self, inner: Item, name: str, slot: Slot, found: list[Any]) -> Iterator[tuple[str, Any]]:
        field = self._fields.get(name)
        value = found[0] if found else True
        if field is not None and field.kind is Kind.SHARE:
            value = round(value * WHOLE)
        if slot.words == ("true", "false"):
            value = value in (True, "true")
        elif field is not None and field.most is not None and value > field.most:
            self._report.add("HM205", f"`{name}` must be {field.least} to {field.most}", inner.args[0].span)
            return
        yield name, value

    # ---- runs ----

    def _load(self, statement: Item) -> None:
        name = _load_name(statement)
        if name is None:
            place = statement.args[0].span if statement.args else statement.head.span
            self._report.add("HM112", "`load` needs a name", place, help="write `load work { ... }`")
            return
        if self._loads.get(name.text) is not None:
            self._report.add("HM104", f"load `{name.text}` is declared twice", name.span)
            return
        slots = {field: slot for field, slot in _as_slots(self._fields).items() if field in _LOAD_FIELDS}
        said = dict(self._block(statement, {**slots, **LOAD}, "load"))
        if "arrive" not in said:
            written = statement.block.statements if statement.block is not None else ()
            if not any(_is(one, "arrive") for one in written):
                self._report.add("HM106", "`arrive` is missing", name.span, help="write `arrive 60/min`")
            return
        meta = next((field for field in said if field.startswith("meta.")), None)
        if meta is not None:
            self._report.add("HM502", f"a simulated call has no `{meta}`", name.span)
        self._check_contradiction(said, statement)
        rate = said["arrive"]
        self._loads[name.text] = Arriving(
            name=name.text,
            agent=said.get("agent"),
            model=said.get("model", ""),
            tokens_in=said.get("tokens.in", 1_000),
            tokens_out=said.get("tokens.out", 300),
            per_second=rate.amount * 10**9 / rate.window_ns,
            stream=said.get("stream", False),
            path=said.get("path", ""),
            headers=tuple((field[7:], value) for field, value in said.items() if field.startswith("header.")),
            time=said.get("time", said["hour"] * 60 if "hour" in said else None),
            date=str(day_of(said)["date"]) if "date" in said or "weekday" in said else None,
            address=said.get("client.address", LOOPBACK),
            turns=said.get("turns", 1),
            grows=said.get("grow", 0),
            span=statement.span,
        )

    def _upstream(self, statement: Item) -> None:
        provider = self._place(statement)
        latency: tuple[int, int] | None = None
        failing: list[Failing] = []
        plan: dict[PlanSpan, PlanDeclared] = {}
        for inner in statement.block.statements if statement.block is not None else ():
            match inner:
                case Item(head=Name(text="latency")):
                    found = self._args(inner, [Slot(Type.BACKOFF)])
                    latency = found[0] if found else latency
                case Item(head=Name(text="fail"), args=(_, _, *_)):
                    failing += self._fail(inner)
                case Item(head=Name(text="fail")):
                    what, put = "`fail` needs a failure and a share", "fail 529 2%"
                    choices = Fix.choosing(inner.span, (put,))
                    self._report.add("HM112", what, inner.span, help=f"write `{put}`", choices=choices)
                case Item(head=Name(text="plan")):
                    window = self._plan(inner)
                    if window is not None and window.span in plan:
                        self._report.add("HM105", f"`plan {window.span}` is set twice", inner.head.span)
                    elif window is not None:
                        plan[window.span] = window
                case Item(head=head):
                    self._report.unknown("HM102", "`upstream` has no setting", head.text, head.span, [*UPSTREAM])
                case _:
                    self._report.add("HM103", "this is not allowed here", inner.span)
        if provider is not None:
            behaving = Behaving(
                provider=provider, latency_ns=latency, failing=tuple(failing), plan=tuple(plan.values())
            )
            self._upstreams.append(behaving)

    def _place(self, statement: Item) -> str | None:
        """Return the provider of an `upstream`, or its account: `anthropic.batch`; None: that has been reported."""
        if len(statement.args) == 1 and isinstance(name := statement.args[0], Name) and "." in name.text:
            places = self._account_names()
            if name.text in places:
                self._all.reader.used.add(("provider", places[name.text]))
                return name.text
            owner = self._sharing().get(name.text)
            if owner is not None:
                self._report.add(
                    "HM107",
                    f"`{name.text}` has no limits of its own",
                    name.span,
                    help=f"write `{owner}`, whose limits it shares",
                    fix=Fix.replacing(name.span, owner, is_safe=True),
                )
            else:
                self._report.unknown("HM107", "unknown account", name.text, name.span, [*places])
            return None
        given = self._args(statement, [Slot(Type.REF, ("provider",))])
        return given[0] if given is not None else None

    def _account_names(self) -> dict[str, str]:
        """Return the accounts with limits of their own as tests name them, `anthropic.batch`, with their providers."""
        sharing = self._sharing()
        names = {f"{provider}.{account}": provider for provider, account, _ in self._accounts()}
        return {name: provider for name, provider in names.items() if name not in sharing}

    def _sharing(self) -> dict[str, str]:
        """Return the accounts that share the limits of another, and that one."""
        return {
            f"{provider}.{given.value}": f"{provider}.{given.block['shares'][0].value}"
            for provider, declared in self._all.of("provider").items()
            for given in self._all.effective(declared, "account")[0]
            if "shares" in given.block
        }

    def _plan(self, inner: Item) -> PlanDeclared | None:
        """Return a window of a plan: `plan session tokens 20M used 10% every 5h resets 3h`."""
        example = "plan session tokens 20M"
        if not inner.args:
            self._incomplete_plan(inner, "`plan` needs a window", example)
            return None
        window, *rest = inner.args
        word = self._read(window, Slot(Type.WORD, tuple(span.value for span in PlanSpan)))
        said: dict[str, Any] = {}
        for option, value in zip(rest[::2], rest[1::2], strict=False):
            name = option.text if isinstance(option, Name) else ""
            if name not in PLAN_OPTIONS or name in said:
                what = f"`{name}` is set twice" if name in said else "`plan` has no option here"
                known = ", ".join(f"`{each}`" for each in PLAN_OPTIONS)
                self._report.add("HM112", what, option.span, help=f"expected {known}")
                return None
            said[name] = self._read(value, PLAN_OPTIONS[name])
        if len(rest) % 2:
            self._report.add("HM112", "an option of `plan` needs a value", rest[-1].span, help=f"write `{example}`")
        elif "tokens" not in said:
            self._incomplete_plan(
                inner, "`plan` needs the tokens of a whole window", f"plan {word or 'week'} tokens 20M"
            )
        elif word is not None and None not in said.values():
            return self._window(inner, PlanSpan(word), said)
        return None

    def _incomplete_plan(self, inner: Item, what: str, put: str) -> None:
        choices = Fix.choosing(inner.span, (put,))
        self._report.add("HM112", what, inner.span, help=f"write `{put}`", choices=choices)

    def _window(self, inner: Item, span: PlanSpan, said: Mapping[str, Any]) -> PlanDeclared | None:
        every_ns = said.get("every")
        if every_ns is not None and PlanSpan.of(every_ns) is not span:
            self._report.add(
                "HM205",
                f"a window of this length is a `{PlanSpan.of(every_ns)}`",
                inner.span,
                help="a `session` is up to a day long, a `week` up to eight days, a `month` longer",
            )
            return None
        return PlanDeclared(
            span=span,
            tokens=said["tokens"],
            every_ns=every_ns,
            used=said.get("used", 0.0),
            resets_ns=said.get("resets"),
        )

    def _fail(self, inner: Item) -> Iterator[Failing]:
        kind, share, *window = inner.args
        signals = self._read(kind, Slot(Type.SIGNALS))
        part = self._read(share, Slot(Type.RATIO))
        times = {"from": 0, "to": None}
        for word, value in zip(window[::2], window[1::2], strict=False):
            if isinstance(word, Name) and word.text in times:
                times[word.text] = self._read(value, Slot(Type.DURATION))
            else:
                self._report.add("HM112", "`fail` expects `from` and `to` here", word.span)
        if len(window) % 2:
            self._report.add("HM112", "`fail` expects `from` and `to` here", window[-1].span)
        if signals is None or part is None:
            return
        from_ns, to_ns = times["from"] or 0, times["to"]
        for error in (one for one in signals if isinstance(one, ErrorType)):
            status = ERROR_STATUSES.get(error.name.lower(), UNNAMED_STATUS)
            if status not in FAILING_STATUSES:
                self._report.add(
                    "HM502",
                    f"a simulated provider cannot fail with `{error.name}`",
                    kind.span,
                    help=f"it answers {status}, which says of the request what no repetition changes",
                )
                return
            yield Failing(signal=error.name, status=status, share=part, from_ns=from_ns, to_ns=to_ns)
        for signal in (each for one in signals for each in _each(one)):
            if str(signal) not in FAILING:
                self._report.add(
                    "HM502",
                    f"a simulated provider cannot fail with `{signal}`",
                    kind.span,
                    help=f"expected {', '.join(f'`{one}`' for one in FAILING)} or an error type in quotes",
                )
                return
            yield Failing(signal=str(signal), share=part, from_ns=from_ns, to_ns=to_ns)

    def _fault(self, statement: Item) -> None:
        """Read `fault store|node N|link N [from TIME] [to TIME]`."""
        match statement.args:
            case (Name(text="store"), *times):
                of, node = FaultOf.STORE, 0
            case (Name(text="node" | "link" as word), number, *times):
                of, read = FaultOf(word), self._read(number, Slot(Type.COUNT, least=1))
                if read is None:
                    return
                node = read
            case (Name(text="node" | "link" as word),):
                self._wrong_fault(f"`fault {word}` needs the number of a node", statement, FAULTS[FaultOf(word)])
                return
            case (first, *_):
                words = [str(one) for one in FaultOf]
                self._report.unknown(
                    "HM112", "unknown subject of `fault`", getattr(first, "text", ""), first.span, words
                )
                return
            case _:
                self._wrong_fault(
                    "`fault` needs `store`, `node` or `link`", statement, FAULTS[FaultOf.STORE], *FAULTS.values()
                )
                return
        example = FAULTS[of]
        said: dict[str, int] = {}
        for option, value in zip(times[::2], times[1::2], strict=False):
            name = option.text if isinstance(option, Name) else ""
            if name not in ("from", "to") or name in said:
                self._wrong_fault("`fault` expects `from` and `to` here", option, example)
                return
            found = self._read(value, Slot(Type.DURATION))
            if found is None:
                return
            said[name] = found
        if len(times) % 2:
            self._wrong_fault("`fault` expects `from` and `to` with a time each", times[-1], example)
        elif said.get("to", LENGTH_MAX_NS + 1) <= said.get("from", 0):
            self._report.add(
                "HM502", "this `fault` ends before it begins", statement.span, help="let `to` be later than `from`"
            )
        else:
            fault = Fault(of=of, node=node, from_ns=said.get("from", 0), to_ns=said.get("to"), span=statement.span)
            self._faults.append(fault)

    def _wrong_fault(self, what: str, place: Item | Value, *puts: str) -> None:
        choices = Fix.choosing(place.span, tuple(dict.fromkeys(puts))) if isinstance(place, Item) else ()
        self._report.add("HM112", what, place.span, help=f"write `{puts[0]}`", choices=choices)

    def _check_faults(self) -> None:
        """Report faults of nodes that the run does not have, and those after its end."""
        length_ns, said = self._run or (LENGTH_NS, {})
        nodes = said.get("nodes", 1)
        for fault in self._faults:
            if nodes == 1:
                self._report.add(
                    "HM502",
                    "`fault` is about several nodes, and this run has one",
                    fault.span,
                    help="add `nodes` to `run`, as in `run 10m nodes 2`",
                )
                return
            if fault.node > nodes:
                self._report.add(
                    "HM502", f"this run has no node {fault.node}", fault.span, help=f"its nodes are 1 to {nodes}"
                )
            if fault.from_ns >= length_ns:
                self._report.add(
                    "HM502",
                    "the run ends before this `fault` begins",
                    fault.span,
                    help="let `from` be earlier, or `run` longer",
                )

    def _length(self, statement: Item) -> None:
        """Read `run LENGTH [seed N] [nodes N]`."""
        if not statement.args:
            what, put = "`run` needs a duration", "run 10m seed 7"
            choices = Fix.choosing(statement.span, (put,))
            self._report.add("HM112", what, statement.span, help=f"write `{put}`", choices=choices)
            return
        length, *options = statement.args
        length_ns = self._read(length, Slot(Type.DURATION, least=1))
        said: dict[str, Any] = {}
        for option, value in zip(options[::2], options[1::2], strict=False):
            name = option.text if isinstance(option, Name) else ""
            if name not in RUN_OPTIONS or name in said:
                what = f"`{name}` is set twice" if name in said else "`run` has no option here"
                self._report.add("HM112", what, option.span, help="write `run 10m seed 7 nodes 2`")
                return
            said[name] = self._read(value, RUN_OPTIONS[name])
            if name == "nodes" and (said[name] or 0) > NODES_MAX:
                self._report.add("HM205", f"a run has at most {NODES_MAX} nodes", value.span)
        if len(options) % 2:
            self._report.add(
                "HM112", "an option of `run` needs a value", options[-1].span, help="write `run 10m seed 7 nodes 2`"
            )
        elif self._run is not None:
            self._report.add("HM105", "`run` is set twice", statement.head.span)
        elif length_ns is not None and None not in said.values():
            if length_ns > LENGTH_MAX_NS:
                self._report.add("HM205", "a run must be at most `14d`", length.span)
            self._run = length_ns, said

    def _check_times(self) -> None:
        loads = [one for one in self._loads.values() if one is not None]
        for what in ("time", "date"):
            first = next((one for one in loads if getattr(one, what) is not None), None)
            for one in loads:
                if first is not None and getattr(one, what) not in (None, getattr(first, what)):
                    self._report.add(
                        "HM502",
                        f"load `{one.name}` begins at another {what} than load `{first.name}`",
                        one.span,
                        help="give all loads of a test the same start",
                    )

    # ---- values ----

    def _args(self, statement: Item, slots: list[Slot]) -> list[Any] | None:
        """Return the arguments; None: one could not be read, which has been reported."""
        head, args = statement.head.text, statement.args
        if (known := in_words(args, slots[0], self._report.text)) is not None:
            what = f"expected {slots[0].shown()}, found `{self._report.text(known.span)}`"
            self._report.add("HM201", what, known.span, help=known.help, replacement=known.replacement)
            return None
        if len(args) < len(slots) and (args or not all(slot.optional for slot in slots)):
            self._report.add("HM112", f"`{head}` needs {slots[0].shown()}", statement.head.span)
            return None
        if len(args) > len(slots):
            more = args[len(slots)].span.to(args[-1].span)
            why = FURTHER.get(head, "")
            self._report.add(
                "HM112", f"`{head}` takes no further argument", more, help=f"delete it{why}", replacement=""
            )
            return None
        found = [self._read(value, slot) for value, slot in zip(statement.args, slots, strict=False)]
        return None if None in found else found

    def _read(self, value: Value, slot: Slot) -> Any:
        """None: it could not be read, which has been reported."""
        try:
            return self._all.reader.read(value, slot)
        except Unreadable:
            return None


def _is(statement: object, *heads: str) -> bool:
    return isinstance(statement, Item) and statement.head.text in heads


def _load_name(statement: object) -> Name | None:
    match statement:
        case Item(head=Name(text="load"), args=(Name() as name,)):
            return name
        case _:
            return None


def _as_slots(fields: Mapping[str, Field]) -> dict[str, Slot]:
    """Return the slots of fields in a `given`."""
    types: Mapping[Kind, Callable[[Field], Slot]] = {
        Kind.TEXT: lambda _: Slot(Type.TEXT),
        Kind.NUMBER: lambda field: Slot(Type.COUNT, least=field.least),
        Kind.FLAG: lambda _: Slot(Type.WORD, ("true", "false"), optional=True),
        Kind.ENUM: lambda field: Slot(Type.WORD, field.choices),
        Kind.SHARE: lambda _: Slot(Type.RATIO),
        Kind.MONEY: lambda _: Slot(Type.MONEY),
        Kind.DURATION: lambda _: Slot(Type.DURATION),
        Kind.TIME: lambda _: Slot(Type.CLOCK),
        Kind.DATE: lambda _: Slot(Type.DATE),
        Kind.ADDRESS: lambda _: Slot(Type.IP_ADDRESS),
    }
    return {name: types[field.kind](field) for name, field in fields.items() if field.kind in types}
