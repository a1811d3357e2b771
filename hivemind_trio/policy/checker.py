"""A policy, checked whole: read, held against the schema, typed, and compiled where nothing is wrong."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final

from hivemind_trio.model import SecretRef
from hivemind_trio.policy.compile.binder import BoundDeclaration, SettingValue, SymbolTable, declare
from hivemind_trio.policy.compile.checked import Checked
from hivemind_trio.policy.compile.lowering import Conditions, keys_of, lower
from hivemind_trio.policy.diagnostics.collector import DiagnosticCollector, ProgressListener, untold
from hivemind_trio.policy.diagnostics.diagnostic import Diagnostic, Severity
from hivemind_trio.policy.language.condition_typing import LATE, Always, Condition, Typer, reads, request_fields
from hivemind_trio.policy.language.values import is_loopback, store_url_problem, url_problem
from hivemind_trio.policy.lint.consistency import PLAIN_REDIS, check_together, exposed_at, in_the_open
from hivemind_trio.policy.lint.holds import check_holds
from hivemind_trio.policy.lint.overrides import check_overrides
from hivemind_trio.policy.lint.rate_arithmetic import check_amounts
from hivemind_trio.policy.lint.reachability import analyse
from hivemind_trio.policy.lint.sizes import check_sizes
from hivemind_trio.policy.program.degraded_answer import answer_fields
from hivemind_trio.policy.program.policy_tests import PolicyTest
from hivemind_trio.policy.program.program import Program
from hivemind_trio.policy.source.files import Files
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.ast import And, Compare, Contains, Expr, Not, Or
from hivemind_trio.policy.syntax.damage import ABOUT_A_WORD, Damage
from hivemind_trio.policy.syntax.includes import Closure, read_closure, suppressed
from hivemind_trio.policy.testing.block_typing import check_test

PERSONAL_LOGIN: Final = "sk-ant-oat"
"""Beginning of the tokens of logins to plans."""


class SecretState(Enum):
    """State of a secret on a machine, found without reading its value into the policy."""

    OK = auto()
    UNSET = auto()
    """No such variable or file, or an empty one."""
    UNREADABLE = auto()
    IRREGULAR = auto()
    """A folder, a pipe or a device: the file is read again at each reload, which a pipe cannot be."""
    MALFORMED = auto()
    """More than one line, spaces around the value, or no text: no header can carry it."""
    EXPOSED = auto()
    """A file that every user of the machine can read."""


def check(path: str, files: Files, progress: ProgressListener = untold, *, allowed: Sequence[str] = ()) -> Checked:
    """Check a policy and all that it includes. Needs no environment and no network; raises nothing.

    Args:
        allowed: Folders that may be included from, beside that of the policy.
    """
    with _uncollected():
        return _check(path, files, progress, allowed)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no garbage within: all that a check makes lives to its end, and to look takes a quarter of its time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _check(path: str, files: Files, progress: ProgressListener, allowed: Sequence[str]) -> Checked:
    closure = read_closure(path, files, progress, allowed=allowed)
    report = DiagnosticCollector(closure.sources)
    progress("reading declarations", 0, 1)
    declarations = declare(closure, report)
    progress("reading conditions", 0, 1)
    conditions, tests = _conditions(declarations)
    progress("comparing declarations", 0, 1)
    check_together(declarations, conditions)

    program: Program | None = None
    if not any(one.severity is Severity.ERROR for one in _found(closure, declarations)):
        typed = Conditions(
            agents=conditions["agent"],
            teams={name: condition for name, condition in conditions["team"].items() if condition is not None},
            rules={name: condition for name, condition in conditions["rule"].items() if condition is not None},
            budgets={name: condition for name, condition in conditions["budget"].items() if condition is not None},
            degraded={name: condition for name, condition in conditions["provider"].items() if condition is not None},
        )
        program = lower(declarations, typed, closure.hash, progress)
        analyse(declarations, conditions, program, progress)
        for number, compare in enumerate((check_holds, check_amounts, check_sizes)):
            progress("comparing settings", number, 4)
            compare(declarations, conditions, program)
        progress("comparing settings", 3, 4)
        check_overrides(declarations)
    diagnostics = suppressed(_found(closure, declarations), closure, analysed=program is not None)
    return Checked(
        sources=closure.sources,
        paths=closure.paths,
        files=closure.files,
        diagnostics=diagnostics,
        program=program,
        unreadable=closure.unreadable,
        hash=closure.hash,
        secret_spans=declarations.reader.secrets,
        declarations=declarations,
        conditions=conditions,
        tests=tests,
        allows=closure.allows,
    )


def _found(closure: Closure, declarations: SymbolTable) -> tuple[Diagnostic, ...]:
    """All findings so far, without those that only follow from others."""
    report = declarations.report
    damage = Damage.of(closure)
    unread = declarations.let_spans.keys() - declarations.lets.keys()
    return (
        *closure.diagnostics,
        *(
            one
            for one in report.found
            if not damage.explains(one, report.text(one.span))
            and not (one.code in ABOUT_A_WORD and report.text(one.span) in unread)
        ),
    )


def check_secrets(
    checked: Checked, probe: Callable[[SecretRef], SecretState], *, serving: bool = False
) -> tuple[Diagnostic, ...]:
    """Return diagnostics of the secrets that this machine lacks.

    Args:
        serving: The program is about to run: what it needs must be there (errors); otherwise HM209 is a warning.
    """
    report = DiagnosticCollector(checked.sources)
    needed = set(checked.program.secrets) if checked.program is not None else set(checked.secret_spans)
    for ref, span in checked.secret_spans.items():
        severity = Severity.ERROR if serving and ref in needed else Severity.WARNING
        match probe(ref):
            case SecretState.UNSET:
                what = f"`{ref.name}` is not set" if ref.source.value == "env" else f"`{ref.name}` is missing or empty"
                help_ = f"`export {ref.name}=...`" if ref.source.value == "env" else "write the secret to the file"
                report.add("HM209", what, span, severity=severity, help=help_)
            case SecretState.UNREADABLE:
                report.add(
                    "HM209", f"`{ref.name}` cannot be read", span, severity=severity, help="check its owner and mode"
                )
            case SecretState.IRREGULAR:
                report.add("HM209", f"`{ref.name}` is not a regular file", span, help="write the secret to a file")
            case SecretState.MALFORMED:
                report.add(
                    "HM209",
                    f"`{ref.name}` is not a single line of ASCII text, so no header can carry it",
                    span,
                    help="store only the secret: one line, without spaces around it",
                )
            case SecretState.EXPOSED:
                report.warn(
                    "HM605",
                    "every user of this machine can read this secret file",
                    span,
                    help=f"`chmod 600 {ref.name}`",
                )
    return tuple(report.found)


def check_bases(checked: Checked, values: Mapping[SecretRef, str]) -> tuple[Diagnostic, ...]:
    """Return diagnostics of the base URLs that the policy leaves to the machine; the values are not shown.

    Args:
        values: Of the secrets that can be had here.
    """
    report = DiagnosticCollector(checked.sources)
    for declared, given in _left_to_machine(checked, "provider", "base", values):
        ref, url = given.value, values[given.value]
        problem = url_problem(url)
        if problem:
            report.add(
                "HM217",
                f"the value of `{ref}` is not a base URL: {problem}",
                given.span,
                help="set it to a URL like `https://host/path`",
            )
        elif in_the_open(url) and keys_of(checked.declarations, declared):
            report.add("HM604", "the key would be sent unencrypted", given.span, note=f"`{ref}` begins with `http://`")
    for _, given in _left_to_machine(checked, "store", "url", values):
        url = values[given.value]
        if not store_url_problem(url) and in_the_open(url):
            report.add(
                "HM611",
                PLAIN_REDIS,
                given.span,
                severity=Severity.WARNING,
                note=f"`{given.value}` begins with `redis://`",
            )
    return tuple(report.found)


def _left_to_machine(
    checked: Checked, kind: str, setting: str, values: Mapping[SecretRef, str]
) -> Iterator[tuple[BoundDeclaration, SettingValue]]:
    """Yield declarations and their setting where that is a secret whose value is known."""
    for declared in checked.declarations.of(kind).values():
        given = checked.declarations.one(declared, setting)
        if given is not None and isinstance(given.value, SecretRef) and given.value in values:
            yield declared, given


def check_keys(checked: Checked, values: Mapping[SecretRef, str]) -> tuple[Diagnostic, ...]:
    """Return diagnostics of keys that are a person's login to a plan; the values are not shown.

    Args:
        values: Of the secrets that can be had here.
    """
    report = DiagnosticCollector(checked.sources)
    for declared in checked.declarations.of("provider").values():
        for given in keys_of(checked.declarations, declared):
            if values.get(given.value, "").startswith(PERSONAL_LOGIN):
                report.add(
                    "HM608",
                    f"the value of `{given.value}` is a personal login, not an API key",
                    given.span,
                    help="a login is one person's: delete `key`, and let each caller's own login pass through",
                )
    return tuple(report.found)


def check_exposure(checked: Checked, host: str) -> tuple[Diagnostic, ...]:
    """Return what `check` would say if the policy listened there: the command line has the last word."""
    report = DiagnosticCollector(checked.sources)
    if not is_loopback(host):
        exposed_at(checked.declarations, Span(0, 0, 0), report)
    said = {(one.code, one.message) for one in checked.diagnostics}
    return tuple(one for one in report.found if (one.code, one.message) not in said)


def _conditions(
    declarations: SymbolTable,
) -> tuple[dict[str, dict[str, Condition | None]], tuple[PolicyTest, ...]]:
    """Type every `when`, and the statements of tests."""
    report = declarations.report
    names = {kind: list(declarations.of(kind)) for kind in ("agent", "team", "provider", "lane", "retry", "budget")}
    fields = request_fields(names["agent"], names["team"], names["provider"])
    of_rules = Typer(report, fields, declarations.lets, declarations.reader.used)
    # Who calls is asked before anything else is known of the call but what it brings itself.
    own = {name: field for name, field in fields.items() if name not in LATE}
    of_agents = Typer(report, own, declarations.lets, declarations.reader.used)
    of_teams = Typer(report, {**own, "agent": fields["agent"]}, declarations.lets, declarations.reader.used)
    typed: dict[str, dict[str, Condition | None]] = {"agent": {}, "team": {}, "rule": {}, "budget": {}}
    for kind, typer in (("agent", of_agents), ("team", of_teams), ("rule", of_rules), ("budget", of_rules)):
        for name, declared in declarations.of(kind).items():
            nothing = None if kind in ("agent", "team") else Always()
            typed[kind][name] = nothing if declared.when is None else typer.condition(declared.when)
    for name, declared in declarations.of("rule").items():
        condition = typed["rule"][name]
        if "provider" in declared.settings and condition is not None and reads(condition, "provider"):
            assert declared.when is not None
            report.add("HM216", "this rule tests `provider` and sets it", declared.when.span)
    typed["provider"] = _degraded(declarations)
    tests = [check_test(test, declarations, fields, names) for test in declarations.tests]
    _check_unused_lets(declarations, of_rules)
    return typed, tuple(test for test in tests if test is not None)


def _degraded(declarations: SymbolTable) -> dict[str, Condition | None]:
    """Type every `degraded when`; what holds for each provider."""
    typer = Typer(declarations.report, answer_fields(), declarations.lets, declarations.reader.used, of_request=False)
    everywhere = [*declarations.of("provider").values(), declarations.defaults.get("provider")]
    said = [given for one in everywhere if one is not None for given in one.settings.get("degraded", [])]
    typed = {given.item.span: typer.condition(given.when) for given in said if given.when is not None}
    held = {name: declarations.one(one, "degraded") for name, one in declarations.of("provider").items()}
    return {name: typed.get(given.item.span) for name, given in held.items() if given is not None}


def _check_unused_lets(declarations: SymbolTable, typer: Typer) -> None:
    """Type a condition in a `let` that nothing uses; a used one is typed where it is used."""
    for name, value in declarations.lets.items():
        if ("let", name) not in declarations.reader.used and _is_condition(value):
            typer.condition(value)


def _is_condition(value: Expr) -> bool:
    return isinstance(value, (And, Or, Not, Compare, Contains))
