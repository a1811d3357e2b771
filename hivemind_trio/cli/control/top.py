"""`hivemind-trio top`."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

import click

from hivemind_trio.cli.console import color_option, wants_color
from hivemind_trio.cli.table import columns_wanted

from .calls import call_table
from .connect import proxy_address, proxy_options
from .queue import queue_table
from .status import fullest_budgets, header, lane_table, node_table, provider_table
from .words import cropped

ALTERNATE: Final = "\x1b[?1049h\x1b[?25l"
"""Another screen, without a cursor: what was on the terminal is there again afterwards."""
RESTORED: Final = "\x1b[?25h\x1b[?1049l"
HOME: Final = "\x1b[H"
CLEAR_LINE: Final = "\x1b[K"
CLEAR_BELOW: Final = "\x1b[J"
BOLD, WARN, PLAIN = "\x1b[1m", "\x1b[33m", "\x1b[0m"

CALLS_SHOWN: Final = 20


@click.command(
    epilog="""\b
Examples:
  hivemind-trio top                          live; q or Ctrl-C quits
  hivemind-trio top --interval 5 --policy team.hmp
  hivemind-trio top --count 1 | head -3      one picture, without colour
  hivemind-trio top --json | jq -c .status.waiting      an object on a line for each picture

\b
A narrow terminal has fewer columns, a low one fewer rows; in a pipe COLUMNS is the width, if it is set.
If the proxy stops, it is looked for until it is back."""
)
@click.option(
    "--interval", type=click.FloatRange(0.1, 3_600), default=1.0, show_default=True, help="Seconds between pictures."
)
@click.option("--count", type=click.IntRange(min=1), help="End after so many pictures. Default: go on.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print `status`, `queue`, `calls` and `budgets` as JSON, a line each time."
)
@color_option
@proxy_options
def top(interval: float, count: int | None, as_json: bool, color: str, socket: str | None, policy: str | None) -> None:
    """Show providers, what waits and calls, live."""
    where = proxy_address(socket, policy)
    if as_json:
        _print_each(where, interval, count, _json_line)
        return
    colored = wants_color(color, sys.stdout)
    if not sys.stdout.isatty():
        _print_each(where, interval, count, _whole_picture)
        return
    with Screen() as screen:
        screen.begin()
        for number, found in enumerate(_answers(where), 1):
            picture = [f"{found}\n"] if isinstance(found, str) else _blocks(found)
            width, height = os.get_terminal_size(sys.stdout.fileno())
            sys.stdout.write(_drawn(frame(picture, width, height), colored=colored))
            sys.stdout.flush()
            if number == count or _quits(interval) or screen.signalled:
                return


def _print_each(where: str, interval: float, count: int | None, text_of: Callable[[dict[str, Any]], str]) -> None:
    """Print one picture below the other: this is a pipe or a file."""
    try:
        for number, found in enumerate(_answers(where), 1):
            if isinstance(found, str):
                click.echo(found, err=True)
            else:
                click.echo(text_of(found))
            if number == count:
                return
            time.sleep(interval)
    except KeyboardInterrupt:
        return


def _json_line(found: dict[str, Any]) -> str:
    return json.dumps(found, separators=(",", ":"))


def _whole_picture(found: dict[str, Any]) -> str:
    return "\n".join(frame(_blocks(found), columns_wanted(), sys.maxsize)) + "\n"


def _answers(where: str) -> Iterator[dict[str, Any] | str]:
    """Yield the answers of now, again and again; while there are none, a text that says so."""
    from hivemind_trio.control import NotReachable, RequestRefused

    from .connect import client_at

    while True:
        try:
            with client_at(where) as client:
                while True:
                    yield {
                        "status": client.get("/v1/status"),
                        "queue": client.get("/v1/queue"),
                        "calls": client.get("/v1/calls", limit=CALLS_SHOWN)["calls"],
                        "budgets": client.get("/v1/budgets")["budgets"],
                    }
        except (NotReachable, RequestRefused) as error:
            yield f"! {error}\n! the proxy is asked again until it answers"


def _blocks(found: dict[str, Any]) -> list[str]:
    now = datetime.now(UTC)
    status, queue, calls, budgets = found["status"], found["queue"], found["calls"], found["budgets"]
    return [
        header(status, is_low=True),
        queue_table(queue, now) if queue["queue"] else "",
        provider_table(status["providers"], now),
        lane_table(status["lanes"], now),
        node_table(status["nodes"], status.get("counted_by_each", "")) if status.get("nodes") else "",
        fullest_budgets(budgets, now) if budgets else "",
        call_table(calls, now) if calls else "",
    ]


def frame(blocks: list[str], width: int, height: int) -> list[str]:
    """Return the lines of a picture: none is wider than the terminal, and there are no more than it has."""
    lines: list[str] = []
    for block in blocks:
        if block:
            lines += [*([""] if lines else []), *block.splitlines()]
    return [cropped(line, width) for line in lines[:height]]


def _drawn(lines: list[str], *, colored: bool) -> str:
    """Return what draws the picture over the last one, without a flicker."""
    shown = []
    for number, line in enumerate(lines):
        style = "" if not colored else WARN if line.startswith("!") else BOLD if number == 0 else ""
        shown.append(f"{style}{line}{PLAIN if style else ''}{CLEAR_LINE}")
    return HOME + "\r\n".join(shown) + CLEAR_BELOW


class Screen:
    """Take the screen and the keys; give both back, however it ends.

    SIGINT and SIGTERM are remembered too: Python drops what a handler raises inside a destructor or a callback of the
    garbage collector, and a signal that comes there would be lost.
    """

    def __init__(self) -> None:
        self.signalled: int | None = None
        """Signal that has come, if any: no further picture."""
        self._shown = False
        self._before: dict[int, Any] = {}
        self._kept: list[Any] | None = None

    def __enter__(self) -> Self:
        import termios
        import tty

        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._signal)
        if sys.stdin.isatty():
            self._kept = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        sys.stdout.write(ALTERNATE)
        return self

    def begin(self) -> None:
        """Let signals end the context from now on: one that came before it began would have left the screen taken."""
        self._shown = True
        if self.signalled is not None:
            raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> bool:
        import termios

        self._shown = False
        sys.stdout.write(RESTORED)
        sys.stdout.flush()
        if self._kept is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._kept)
        for number, before in self._before.items():
            signal.signal(number, before)
        if self.signalled == signal.SIGTERM:
            sys.exit(128 + self.signalled)
        return kind is KeyboardInterrupt

    def _signal(self, number: int, _: object) -> None:
        self.signalled = number
        if self._shown:
            raise KeyboardInterrupt


def _quits(interval: float) -> bool:
    """Wait for the next picture; True: somebody has pressed q."""
    if not sys.stdin.isatty():
        time.sleep(interval)
        return False
    ready, _, _ = select.select([sys.stdin], [], [], interval)
    # Any other key is answered with the next picture.
    return bool(ready) and os.read(sys.stdin.fileno(), 64)[:1].lower() in (b"q", b"\x03", b"")
