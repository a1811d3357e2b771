"""`hivemind-trio explain`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import click
from click.shell_completion import CompletionItem

from hivemind_trio.cli.console import EXIT_CLEAN, EXIT_PROBLEMS, EXIT_USAGE, color_option, fail, wants_color
from hivemind_trio.cli.journal.find import journal_options
from hivemind_trio.cli.journal.story import explain_recorded
from hivemind_trio.cli.policy_files import checked_policy
from hivemind_trio.cli.table import aligned

if TYPE_CHECKING:
    from hivemind_trio.model import Decision, Moment, Request
    from hivemind_trio.policy import Checked, Explanation

CALL: Final = re.compile(r"[0-9a-f]{6}-[0-9]+")

CODE: Final = re.compile(r"hm[0-9]{0,3}", re.IGNORECASE)

NANOSECONDS: Final = 1_000_000_000


def _codes(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the code of a diagnostic; what is none may be a file."""
    from hivemind_trio.policy import PAGES

    codes = [CompletionItem(code) for code in PAGES if begun and code.startswith(begun.upper())]
    return codes or [CompletionItem(begun, type="file")]


def _fields(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the name of a field up to its `=`."""
    from hivemind_trio.policy import given_fields

    names = (name.removesuffix("NAME") for name in given_fields())
    words = [name if name.endswith(".") else f"{name}=" for name in names]
    return [CompletionItem(word) for word in words if word.startswith(begun)]


@click.command(
    epilog="""\b
Examples:
  hivemind-trio explain team.hmp agent=ci model=claude-opus-4-1      show which rules decide this call
  hivemind-trio explain team.hmp model=gpt-4.1 tokens.in=130k stream=true time=23:30 header.x-priority=urgent
  hivemind-trio explain team.hmp path=/v1/messages model=claude-sonnet-4-5 --json
  hivemind-trio explain --settings provider anthropic team.hmp
  hivemind-trio explain HM303        show what a diagnostic means
  hivemind-trio explain HM2          list the codes that begin with HM2
  hivemind-trio explain 3fa2c1-17    tell the story of a recorded call; its id is in the header x-hivemind-call
  hivemind-trio explain --last       tell that of the last call; --agent ci: of this agent's last call
  hivemind-trio explain --slow       list the calls of the last day that waited longest

\b
Fields: agent model path method stream tools images tokens.in tokens.max-out cost attempt
time (`22:30`) hour date (`2026-12-25`) weekday client.address (`10.1.2.3`)
plan.session plan.week plan.month (`85%`) plan.overage
session.context session.turns session.cost (`$5`) session.age (`2h`) header.NAME meta.NAME, api,
token (the agent whose token the call has) and claim (the agent that it names).
A field that is not given has the language's default; the time is now. Without `path` or `api` the call may be in the
dialect of any provider of the policy."""
)
@click.argument("subject", metavar="FILE|CODE|CALL", required=False, shell_complete=_codes)
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]...", shell_complete=_fields)
@click.option(
    "--settings",
    "of",
    nargs=2,
    metavar="KIND NAME",
    help="Show every setting of a declaration: its value, and where it is set.",
)
@click.option("--last", is_flag=True, help="Tell the story of the call that was answered last.")
@click.option("--slow", is_flag=True, help="List the recorded calls that waited longest.")
@click.option("--agent", metavar="NAME", help="Look at recorded calls of this agent only.")
@click.option("--since", metavar="TIME", help="With --slow: look at calls from then on. Default: `24h`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@journal_options
@color_option
def explain(
    subject: str | None,
    fields: tuple[str, ...],
    of: tuple[str, str] | None,
    as_json: bool,
    color: str,
    file: str | None,
    policy: str | None,
    **recorded: Any,
) -> None:
    """Show why a call is treated as it is.

    With a policy, show which rule decides each setting of a call.

    With a code such as HM303, show what that diagnostic means, with an example of wrong and right. With the id of a
    call, show what the journal has of it: rules, waits and their reasons, attempts, tokens, money.
    """
    is_recorded = recorded["last"] or recorded["slow"] or recorded["agent"] is not None
    if (subject is not None and CALL.fullmatch(subject)) or (subject is None and is_recorded):
        explain_recorded(subject, file=file, policy=policy, as_json=as_json, **recorded)
        return
    if subject is None:
        fail("nothing to explain", hint="name a policy file, a code such as HM303 or a call; or use --last")
    if is_recorded or file is not None or policy is not None:
        fail(f"{subject}: no call", hint="the id of a call is in the header x-hivemind-call, such as 3fa2c1-17")
    if CODE.fullmatch(subject) and not fields and of is None:
        sys.exit(_explain_code(subject.upper()))
    checked = checked_policy(subject)
    if checked.program is None:
        from hivemind_trio.policy import render

        colored = wants_color(color, sys.stderr)
        click.echo(render([checked], "text", color=colored), nl=False, err=True, color=colored)
        sys.exit(EXIT_USAGE if checked.unreadable else EXIT_PROBLEMS)
    if of is not None:
        if fields:
            fail("--settings takes no fields", hint="`hivemind-trio explain --settings provider anthropic team.hmp`")
        _explain_settings(checked, *of, as_json=as_json)
    else:
        _explain_call(checked, fields, as_json=as_json, color=wants_color(color, sys.stdout))


def _explain_code(code: str) -> int:
    from hivemind_trio.policy import PAGES, page_text

    if code in PAGES:
        click.echo(page_text(PAGES[code]), nl=False)
        return EXIT_CLEAN
    listed = [page for page in PAGES.values() if page.code.startswith(code)]
    if not listed:
        fail(f"no code {code}", hint="`hivemind-trio explain HM` lists them all")
    for page in listed:
        click.echo(f"{page.code}  {page.title}" + ("" if page.reported else "  (not looked for by this version)"))
    return EXIT_CLEAN


# ---- a declaration ----


def _explain_settings(checked: Checked, kind: str, name: str, *, as_json: bool) -> None:
    from hivemind_trio.policy import NotDeclared, settings

    try:
        rows = settings(checked, kind, name)
    except NotDeclared as error:
        fail(str(error), hint=error.hint)
    if as_json:
        listed = [{"setting": row.name, "value": row.value, "origin": row.origin} for row in rows]
        click.echo(json.dumps({"format_version": 1, "kind": kind, "name": name, "settings": listed}, indent=2))
        return
    table = [(row.name, row.value or "-", row.origin) for row in rows]
    click.echo(f"{kind} {name}\n" + _table(table, indent="  "))


# ---- a call ----


def _explain_call(checked: Checked, fields: tuple[str, ...], *, as_json: bool, color: bool) -> None:
    from hivemind_trio.policy import RequestError, explain, parse_request
    from hivemind_trio.wire import apis_of

    try:
        request = parse_request(checked, fields, defaults=_now(checked), apis_of=apis_of)
    except RequestError as error:
        fail(str(error), hint="`hivemind-trio explain team.hmp agent=ci model=claude-opus-4-1 tokens.in=12k`")
    explanation = _as_the_proxy_does(checked, explain(checked, request))
    if as_json:
        click.echo(json.dumps(_as_object(explanation), indent=2))
    else:
        text = _as_text(checked, explanation, dialect=_dialect(checked, request, fields), color=color)
        click.echo(text, nl=False, color=color)


def _as_the_proxy_does(checked: Checked, explanation: Explanation) -> Explanation:
    """Deny what the policy admits and the proxy does not forward, with the words of the proxy."""
    from hivemind_trio.dialects import CREDENTIAL_HEADERS
    from hivemind_trio.model import Reason, rejection_text
    from hivemind_trio.policy import quote
    from hivemind_trio.wire import METHODS_REJECTED, base_url_hint, is_admin

    request, treatment = explanation.request, explanation.treatment
    assert checked.program is not None
    providers = checked.program.providers
    bases = [one.base for one in providers.values() if isinstance(one.base, str)]
    denied = None
    if request.method.upper() in METHODS_REJECTED:
        denied = rejection_text(Reason.METHOD_REJECTED, method=request.method)
    elif hint := base_url_hint(request.path, bases):
        denied = rejection_text(Reason.NO_PROVIDER, "base", path=request.path, hint=hint)
    elif explanation.denied is None and treatment.provider is not None:
        has_key = any(pool.keys for pool in providers[treatment.provider].pools())
        is_named = bool(request.token_agent) or any(name.decode() in request.headers for name in CREDENTIAL_HEADERS)
        if request.token_agent and not has_key:
            denied = rejection_text(Reason.DENIED, "key", provider=treatment.provider)
        elif treatment.is_allowed_by_rule:
            pass
        elif is_admin(request.path):
            denied = rejection_text(Reason.DENIED, "admin", path=request.path)
        elif has_key and not request.apis and request.path and not is_named:
            denied = rejection_text(Reason.NO_PROVIDER, "key", path=request.path, quoted=quote(request.path))
    return explanation if denied is None else attrs.evolve(explanation, denied=denied, bounds=())


def _now(checked: Checked) -> dict[str, str]:
    """Return the time of day and the date, if the policy reads any of them."""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from hivemind_trio.policy import reads_time

    assert checked.program is not None
    if not reads_time(checked):
        return {}
    zone = checked.program.server.timezone
    now = datetime.now(ZoneInfo(zone) if zone else None)
    return {"time": f"{now:%H:%M}", "date": now.date().isoformat()}


def _dialect(checked: Checked, request: Request, fields: tuple[str, ...]) -> tuple[str, str]:
    """Return the dialects that a provider of the policy speaks, of those that the call may have, and their origin."""
    assert checked.program is not None
    given = {word.partition("=")[0] for word in fields}
    spoken = {provider.api for provider in checked.program.providers.values()}
    known = [api.value for api in request.apis if api in spoken] or [api.value for api in request.apis]
    origin = "given" if "api" in given else "by the path" if "path" in given else "assumed: `path=` or `api=` says it"
    return " or ".join(known) or "none that is known", origin


def _as_text(checked: Checked, explanation: Explanation, *, dialect: tuple[str, str], color: bool) -> str:
    from hivemind_trio.model.dates import date_on
    from hivemind_trio.policy import clock, duration

    treatment = explanation.treatment

    def by(setting: str) -> str:
        return str(treatment.decided[setting])

    verdict = f'denied: "{explanation.denied}"' if explanation.denied is not None else _goes(explanation)
    deadline = "none" if treatment.deadline_ns is None else duration(treatment.deadline_ns)
    rows = [
        ("verdict", verdict, str(explanation.denied_by)),
        ("dialect", *dialect),
        ("agent", treatment.agent, by("agent")),
        ("team", treatment.team, _by_team(treatment)),
        ("provider", treatment.provider or "none", by("provider")),
        *_accounts(checked, treatment),
        *([("model", treatment.model, by("model"))] if treatment.model is not None else []),
        *_name_there(checked, explanation),
        ("lane", treatment.lane, by("lane")),
        ("priority", str(treatment.priority), by("priority")),
        ("deadline", deadline, by("deadline")),
        ("retry", *_retry(checked, explanation)),
        *(
            [("affinity", _affinity(treatment.affinity_ns), by("affinity"))]
            if treatment.affinity_ns is not None
            else []
        ),
        *([("max-output", f"{treatment.max_output:,} tokens", by("max-output"))] if treatment.max_output else []),
        *([("tags", ", ".join(treatment.tags), "")] if treatment.tags else []),
        *([("warnings", "; ".join(treatment.warnings), "")] if treatment.warnings else []),
    ]
    parts = [_table(rows, color=color)]
    if explanation.steps:
        steps = []
        for step in explanation.steps:
            says = [f"decides {', '.join(step.decides)}"] if step.decides else []
            says += [f"{', '.join(step.late)} decided above"] if step.late else []
            steps.append((step.rule, "matches" if step.matches else "-", "; ".join(says), step.at))
        parts.append("rules, top to bottom:\n" + _table(steps, indent="  "))
    if explanation.bounds:
        parts.append("counts against:\n" + _table(explanation.bounds, indent="  "))
    request = explanation.request
    if request.time or request.weekday:
        is_dated = request.weekday and request.date != date_on(request.weekday)
        day = f"{request.date} (weekday {request.weekday})" if is_dated else f"weekday {request.weekday or 1}"
        parts.append(f"at {clock(request.time)} on {day}; `time=` and `date=` ask for another time")
    return "\n".join(f"{part}\n" for part in parts)


def _goes(explanation: Explanation) -> str:
    """Return the verdict of a call that is not denied: until when it is held, if it is."""
    if explanation.held is None:
        return "admitted"
    until = explanation.held_until
    if until is None:
        return f'held: "{explanation.held}", as long as no plan reading or new policy changes that'
    clock, date = f"{until.second // 3_600:02}:{until.second // 60 % 60:02}", explanation.request.date
    return f'held: "{explanation.held}", until {clock}' + (f" on {until.date}" if until.date != date else "")


def _accounts(checked: Checked, treatment: Decision) -> list[tuple[str, str, str]]:
    """Return the accounts that the call may use, if the provider has several, and what orders them."""
    assert checked.program is not None
    provider = checked.program.providers.get(treatment.provider or "")
    if provider is None or not provider.accounts:
        return []
    own = [one.name for one in provider.accounts if treatment.lane in one.lanes]
    names = [*own, *(one.name for one in provider.accounts if not one.lanes)]
    return [("account", " or ".join(names), f"`spread {provider.spread}` of those with room ({provider.at})")]


def _name_there(checked: Checked, explanation: Explanation) -> list[tuple[str, str, str]]:
    """Return the name that the provider has for the model, where that is another."""
    treatment = explanation.treatment
    assert checked.program is not None
    if treatment.provider is None:
        return []
    named = checked.program.name_at(treatment.model or explanation.request.model, treatment.provider)
    return [("sent as", named, f"`model ... on {treatment.provider}`")] if named is not None else []


def _retry(checked: Checked, explanation: Explanation) -> tuple[str, str]:
    """Return the retry class, and who decided it: what no rule does, the provider does."""
    treatment = explanation.treatment
    assert checked.program is not None
    if treatment.retry is not None or treatment.provider is None:
        return treatment.retry or "-", str(treatment.decided["retry"])
    provider = checked.program.providers[treatment.provider]
    declared = "retry" in checked.declarations.of("provider")[provider.name].settings
    return provider.retry, f"provider {provider.name} ({provider.at})" if declared else "built-in"


def _affinity(most_ns: int) -> str:
    from hivemind_trio.policy import duration

    return f"model, for {duration(most_ns)} at most"


def _table(rows: Sequence[tuple[str, ...]], *, indent: str = "", color: bool = False) -> str:
    """Rows in columns; the second one is what was asked for."""
    lines = []
    for cells in aligned(rows):
        if color:
            cells[1] = click.style(cells[1], bold=True)
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def _moment(moment: Moment | None) -> str | None:
    if moment is None:
        return None
    return f"{moment.date}T{moment.second // 3_600:02}:{moment.second // 60 % 60:02}"


def _by_team(treatment: Decision) -> str:
    if "team" in treatment.decided:
        return str(treatment.decided["team"])
    return str(treatment.decided["agent"]) if treatment.team != "none" else "built-in"


def _as_object(explanation: Explanation) -> dict[str, Any]:
    treatment = explanation.treatment
    return {
        "format_version": 1,
        "verdict": "deny" if explanation.denied is not None else "allow" if explanation.held is None else "hold",
        "message": explanation.denied or explanation.held or "",
        "held_until": _moment(explanation.held_until),
        "apis": [api.value for api in explanation.request.apis],
        "agent": treatment.agent,
        "team": treatment.team,
        "provider": treatment.provider,
        "limits": treatment.group,
        "model": treatment.model,
        "lane": treatment.lane,
        "priority": treatment.priority,
        "retry": treatment.retry,
        "deadline_s": None if treatment.deadline_ns is None else treatment.deadline_ns / NANOSECONDS,
        "affinity_s": None if treatment.affinity_ns is None else treatment.affinity_ns / NANOSECONDS,
        "max_output": treatment.max_output,
        "tags": list(treatment.tags),
        "warnings": list(treatment.warnings),
        "budgets": list(treatment.budgets),
        "decided_by": {
            setting: {"kind": decider.kind, "name": decider.name, "at": decider.at}
            for setting, decider in {**treatment.decided, "verdict": explanation.denied_by}.items()
        },
        "rules": [
            {
                "rule": step.rule,
                "at": step.at,
                "matches": step.matches,
                "decides": list(step.decides),
                "late": list(step.late),
            }
            for step in explanation.steps
        ],
        "bounds": [{"of": of, "bound": bound, "at": at} for of, bound, at in explanation.bounds],
    }
