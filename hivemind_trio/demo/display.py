"""Display of the demo: a moving line on a terminal, plain lines elsewhere, and a final table."""

from __future__ import annotations

import json
import sys
from typing import Final, Protocol, final

import attrs
import trio
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hivemind_trio.sim import Agent, Provider, Traits, Trouble

from .incident import Incident, IncidentFigures

_REFRESH_S: Final = 0.1
_PLAIN_EVERY_S: Final = 3.0
_GLYPHS: Final = ("■", "✗", "·")
"""A turn that is done, the one that was fatal, one still to do."""
_ASCII_GLYPHS: Final = ("#", "x", ".")


class Show(Protocol):
    """Someone to tell the story to."""

    def begin(self, scenario: Incident) -> None:
        """Before anything runs."""

    async def watch(self, title: str, agents: list[Agent], world: Provider) -> None:
        """Follow a fleet until cancelled."""

    def end(self, scenario: Incident, direct: IncidentFigures, proxied: IncidentFigures) -> None:
        """After both fleets."""


@final
class JsonShow:
    """Figures only."""

    def begin(self, scenario: Incident) -> None:
        """Print nothing: the figures come at the end."""

    async def watch(self, title: str, agents: list[Agent], world: Provider) -> None:
        """Wait until the run is over."""
        await trio.sleep_forever()

    def end(self, scenario: Incident, direct: IncidentFigures, proxied: IncidentFigures) -> None:
        """Print the figures of both runs as JSON."""

        def figures(one: IncidentFigures) -> dict[str, object]:
            ratio = one.over_bound
            return attrs.asdict(one) | {"over_bound": None if ratio is None else round(ratio, 4)}

        said = {
            "format_version": 1,
            "seed": scenario.seed,
            "scenario": attrs.asdict(scenario),
            "direct": figures(direct),
            "proxy": figures(proxied),
        }
        json.dump(said, sys.stdout, indent=2)
        sys.stdout.write("\n")


@final
class TextShow:
    """For people."""

    def __init__(self, *, color: bool) -> None:
        self._console = Console(color_system="auto" if color else None, no_color=not color, highlight=False)

    def begin(self, scenario: Incident) -> None:
        """Print the limits of the provider and the fleet."""
        traits = scenario.traits
        mean_s = traits.latency_mean_ns / 1e9
        rate = f" and more than {traits.requests.limit} requests a minute (429)" if traits.requests else ""
        self._console.print(
            f"{scenario.agents} agents, {scenario.turns} turns each, all streamed, one key. A simulated provider on a "
            f"loopback port refuses more than {traits.concurrency} calls at once (529){rate}, answers "
            f"{traits.bad_gateways:.0%} with a 502 and resets the connection of {traits.resets:.0%}. "
            "An agent dies of its first error.",
            f"Scaled down: an answer takes about {mean_s:.1f} s instead of a coding agent's 10 to 60 s, and a job has "
            f"{scenario.turns} turns instead of dozens; so the provider fails more often than a real one, to be as bad "
            "in a minute as that is in hours.",
            sep="\n",
        )
        self._console.print()

    async def watch(self, title: str, agents: list[Agent], world: Provider) -> None:
        """Show the run as it goes, live on a terminal."""
        if self._console.is_interactive:
            await self._watch_live(title, agents, world)
        else:
            await self._watch_plain(title, agents, world)

    async def _watch_live(self, title: str, agents: list[Agent], world: Provider) -> None:
        started_s = trio.current_time()
        glyphs = _GLYPHS if self._console.encoding.startswith("utf") else _ASCII_GLYPHS
        with Live(console=self._console, auto_refresh=False, transient=False) as screen:
            try:
                while True:
                    screen.update(_grid(title, agents, world, trio.current_time() - started_s, glyphs), refresh=True)
                    await trio.sleep(_REFRESH_S)
            finally:
                screen.update(_grid(title, agents, world, trio.current_time() - started_s, glyphs), refresh=True)

    async def _watch_plain(self, title: str, agents: list[Agent], world: Provider) -> None:
        started_s = trio.current_time()
        self._console.print(title)
        told: set[str] = set()
        next_s = _PLAIN_EVERY_S
        try:
            while True:
                self._tell_deaths(agents, told, trio.current_time() - started_s)
                if trio.current_time() - started_s >= next_s:
                    next_s += _PLAIN_EVERY_S
                    self._console.print(f"  {trio.current_time() - started_s:5.1f} s  {_progress(agents, world)}")
                await trio.sleep(_REFRESH_S)
        finally:
            self._tell_deaths(agents, told, trio.current_time() - started_s)
            self._console.print(f"  {trio.current_time() - started_s:5.1f} s  {_progress(agents, world)}")

    def _tell_deaths(self, agents: list[Agent], told: set[str], seconds: float) -> None:
        for agent in agents:
            if agent.dead and agent.job.agent not in told:
                told.add(agent.job.agent)
                turn = agent.turns_done + 1
                self._console.print(f"  {seconds:5.1f} s  {agent.job.agent} died in turn {turn}: {agent.died_of}")

    def end(self, scenario: Incident, direct: IncidentFigures, proxied: IncidentFigures) -> None:
        """Print the table of both runs."""
        table = Table(title_justify="left")
        table.add_column("")
        table.add_column("direct", justify="right")
        table.add_column("through the proxy", justify="right")

        def row(name: str, show: object, other: object, *, bad: bool = False) -> None:
            table.add_row(name, Text(str(show), style="red" if bad else ""), str(other))

        row(
            "dead agents",
            f"{direct.dead} of {direct.agents}",
            f"{proxied.dead} of {proxied.agents}",
            bad=direct.dead > 0,
        )
        row("turns done", f"{direct.turns_done} of {direct.turns}", f"{proxied.turns_done} of {proxied.turns}")
        row("wasted tokens", f"{direct.tokens_wasted:,}", f"{proxied.tokens_wasted:,}", bad=direct.tokens_wasted > 0)
        for trouble, why in _troubles(scenario.traits).items():
            met, other = direct.met.get(trouble.value, 0), proxied.met.get(trouble.value, 0)
            if met or other or trouble in _ALWAYS_TOLD:
                row(f"met {why}", met, other, bad=met > 0)
        row("most in flight at the provider", direct.inflight_max, proxied.inflight_max)
        row("time", f"{direct.seconds:.1f} s", f"{proxied.seconds:.1f} s")
        bound = f"{proxied.bound_seconds:.1f} s ({proxied.bound_binds})"
        row("lower bound of all the work", bound, bound)
        row("time / bound", _ratio(direct), _ratio(proxied))
        self._console.print()
        self._console.print(table)
        if proxied.dead == 0:
            self._console.print(
                "No agent died behind the proxy, which ran policies/demo.hmp. Yours: `hivemind-trio serve`."
            )
        else:
            self._console.print(f"{proxied.dead} agents died behind the proxy: that is a bug, please report it.")


_ALWAYS_TOLD: Final = (Trouble.OVERLOAD, Trouble.REQUESTS, Trouble.BAD_GATEWAY, Trouble.RESET)


def _troubles(traits: Traits) -> dict[Trouble, str]:
    """Return the kinds of failure and their causes."""
    asked = "requests" if traits.requests is None else f"{traits.requests.limit} requests a minute"
    return {
        Trouble.OVERLOAD: f"529, over {traits.concurrency} at once",
        Trouble.REQUESTS: f"429, over {asked}",
        Trouble.INPUT: "429, too many input tokens",
        Trouble.OUTPUT: "429, too many output tokens",
        Trouble.BAD_GATEWAY: "502, bad gateway",
        Trouble.OUTAGE: "503, an outage",
        Trouble.TOO_LARGE: "413, a prompt too large",
        Trouble.RESET: "connection reset at once",
        Trouble.BREAK: "connection reset mid-stream",
    }


def _ratio(figures: IncidentFigures) -> str:
    ratio = figures.over_bound
    return "work left undone" if ratio is None else f"{ratio:.2f}"


def _progress(agents: list[Agent], world: Provider) -> str:
    turns = sum(len(agent.job.turns) for agent in agents)
    done = sum(agent.turns_done for agent in agents)
    dead = sum(agent.dead for agent in agents)
    return f"{done:3} of {turns} turns, {dead} dead, {world.inflight} in flight, {world.met.total()} failed"


def _grid(title: str, agents: list[Agent], world: Provider, seconds: float, glyphs: tuple[str, str, str]) -> Table:
    """One cell per agent and turn: how far everyone is, at a glance."""
    done, fatal, todo = glyphs
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(title, style="bold"), Text(f"{seconds:5.1f} s"))
    for agent in agents:
        left = len(agent.job.turns) - agent.turns_done
        bar = Text(done * agent.turns_done, style="green")
        if agent.dead:
            bar.append(fatal, style="bold red").append(todo * (left - 1), style="dim")
            bar.append(f"  {agent.died_of}", style="red")
        else:
            bar.append(todo * left, style="dim")
        grid.add_row(Text(f"  {agent.job.agent}"), bar)
    grid.add_row("", Text(_progress(agents, world), style="dim"))
    return grid
