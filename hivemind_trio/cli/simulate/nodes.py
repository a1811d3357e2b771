"""Options of `simulate` about several nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hivemind_trio.cli.console import fail

if TYPE_CHECKING:
    from hivemind_trio.sim import NodesSpec, TimeSpan

NODES_MAX: Final = 64

_SPAN: Final = re.compile(r"(?P<since>[0-9a-z.]+)\.\.(?P<until>[0-9a-z.]+)")
_AT: Final = re.compile(r"(?P<node>\d+)@(?P<time>.+)")


def nodes_spec(
    count: int | None, away: tuple[str, ...], dies: tuple[str, ...], cuts: tuple[str, ...]
) -> NodesSpec | None:
    """Return the nodes that the command line asks for; None: one proxy, which is alone."""
    from hivemind_trio.sim import NodesSpec

    if count is None:
        for option, given in (("--store-away", away), ("--die", dies), ("--cut", cuts)):
            if given:
                fail(f"{option} needs --nodes", hint=f"add `--nodes 4` to `{option} {given[0]}`")
        return None
    killed = [(node, _killed(said)) for node, said in (_at("--die", one, count) for one in dies)]
    forever = {node for node, span in killed if span.until_ns == 0}
    if len(forever) == count:
        fail("--die leaves no node", hint=f"with --nodes {count}, let at most {count - 1} of them die")
    return NodesSpec(
        count=count,
        away=tuple(_span("--store-away", one) for one in away),
        dies=tuple((node, span.since_ns) for node, span in killed),
        returns=tuple((node, span.until_ns) for node, span in killed if span.until_ns),
        cuts=tuple((node, _span("--cut", said)) for node, said in (_at("--cut", one, count) for one in cuts)),
    )


def after_the_end(spec: NodesSpec, ended_ns: int) -> str | None:
    """Return what to say of faults that begin when every run is over; None: there are none."""
    starts = {
        "--store-away": [span.since_ns for span in spec.away],
        "--die": [at_ns for _, at_ns in spec.dies],
        "--cut": [span.since_ns for _, span in spec.cuts],
    }
    late = [
        f"`{option}` of {at_ns / 1e9:g} s" for option, times in starts.items() for at_ns in times if at_ns >= ended_ns
    ]
    if not late:
        return None
    return f"without effect: {', '.join(late)}; the longest run ends after {ended_ns / 1e9:.0f} s"


def _killed(said: str) -> TimeSpan:
    """Return `90s` or `90s..120s`; one without an end ends at 0."""
    from hivemind_trio.sim import TimeSpan

    return _span("--die", said) if ".." in said else TimeSpan(since_ns=_time_ns("--die", said), until_ns=0)


def _at(option: str, said: str, count: int) -> tuple[int, str]:
    example = "2@90s" if option == "--die" else "3@60s..100s"
    found = _AT.fullmatch(said)
    if found is None:
        fail(f"{option} {said}: a node and a time, with `@` between them", hint=f"for example `{option} {example}`")
    node = int(found["node"])
    if not 1 <= node <= count:
        fail(f"{option} {said}: there is no node {node}", hint=f"with --nodes {count}, nodes are 1 to {count}")
    return node, found["time"]


def _span(option: str, said: str) -> TimeSpan:
    from hivemind_trio.sim import TimeSpan

    found = _SPAN.fullmatch(said)
    if found is None:
        fail(f"{option}: `{said}` is no time span", hint="write its beginning and its end: `60s..100s`")
    since_ns, until_ns = _time_ns(option, found["since"]), _time_ns(option, found["until"])
    if since_ns >= until_ns:
        fail(f"{option}: `{said}` ends before it begins", hint="write its beginning and its end: `60s..100s`")
    return TimeSpan(since_ns=since_ns, until_ns=until_ns)


def _time_ns(option: str, said: str) -> int:
    from hivemind_trio.policy import duration_ns

    try:
        return duration_ns(said)
    except ValueError:
        fail(f"{option}: `{said}` is no duration", hint="write a number and a unit: `90s`, `5m`")
