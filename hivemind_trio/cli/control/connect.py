"""Running proxies as the command line finds them: by socket, by policy, or the only one that there is."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hivemind_trio.cli.console import fail

if TYPE_CHECKING:
    from hivemind_trio.control import ControlClient

HOST_AND_PORT: Final = re.compile(r"[A-Za-z0-9.\-\[\]:]+:[0-9]{1,5}")
OTHER_USER: Final = "run this command as the user who runs the proxy"
BASE_URLS: Final = ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "GOOGLE_GEMINI_BASE_URL")


def named_in(environment: Mapping[str, str]) -> str:
    """Return the name that an agent's environment gives it; empty: none."""
    for variable in BASE_URLS:
        match = re.search(r"//[^/]+/@([A-Za-z0-9._~-]{1,64})(?:/|$)", environment.get(variable, ""))
        if match is not None:
            return match[1]
    return environment.get("HIVEMIND_JOB", "")


def proxy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--socket` and `--policy`, which name the proxy."""
    command = click.option(
        "--socket",
        metavar="FILE|URL",
        help="Ask the proxy at this control socket, or at this URL with the token in HIVEMIND_ADMIN_TOKEN.",
    )(command)
    return click.option(
        "--policy",
        metavar="FILE",
        help="Ask the proxy that serves this policy. Default: the only proxy of this user that runs.",
    )(command)


class NoProxy(Exception):  # noqa: N818 - a state of the machine
    """There is no proxy to ask, or more than one; `hint` says what to do."""

    def __init__(self, message: str, hint: str, choices: tuple[Path, ...] = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.choices = choices
        """Sockets of those that run."""


json_option = click.option("--json", "as_json", is_flag=True, help="Print the JSON of the control API.")


@contextmanager
def proxy_of(path: str | None, policy: str | None) -> Iterator[ControlClient]:
    """Give a client of the proxy; ends with status 2 if there is none, or if it answers with a problem."""
    from hivemind_trio.control import NotReachable, RequestRefused
    from hivemind_trio.policy import visible

    try:
        with client_at(proxy_address(path, policy)) as client:
            yield client
    except NotReachable as error:
        fail(str(error), hint=unanswered(path))
    except RequestRefused as error:
        for line in error.diagnostics:
            click.echo(visible(line), err=True)
        fail(str(error), hint=_hint(error.status, error.code))


def unanswered(path: str | None) -> str:
    """Return advice where a proxy does not answer.

    Args:
        path: The socket or the URL that was named; None: the only proxy was found.
    """
    found = "without --socket the running proxies are found"
    return f"it may have stopped; {found}" if path is not None else "it has stopped, or is too busy: look at its log"


def _hint(status: int, code: str) -> str:
    """Return advice on a problem; empty: its text says enough."""
    if code == "unauthorized":
        return "HIVEMIND_ADMIN_TOKEN has another token"
    if not code and status:
        return "name the address of `server { admin }`, not that of agents or of metrics"
    return ""


def proxy_address(path: str | None, policy: str | None) -> str:
    """Return the socket or the URL of the proxy; ends with status 2 if there is none."""
    from hivemind_trio.policy import visible

    if path is not None:
        if HOST_AND_PORT.fullmatch(path) and not Path(path).exists():
            fail(f"--socket {visible(path)}: no such file", hint=f"write http://{path} for an address")
        if Path(path).exists() and not os.access(path, os.W_OK):
            fail(f"--socket {visible(path)}: permission denied", hint=OTHER_USER)
        return path
    try:
        return str(found_proxy(policy))
    except NoProxy as none:
        for one in none.choices:
            click.echo(f"--socket {visible(str(one))}   {visible(_described(one))}", err=True)
        fail(str(none), hint=none.hint)


def client_at(where: str) -> ControlClient:
    """Return a client of the proxy at a socket or a URL.

    Raises:
        NotReachable: Nobody listens there.
    """
    from hivemind_trio.control import ControlClient

    return _at_url(where) if "://" in where else ControlClient.at(Path(where))


def _at_url(url: str) -> ControlClient:
    """Return a client of a proxy at an address; ends with status 2 if there is no token."""
    from hivemind_trio.control import ControlClient

    token = os.environ.get("HIVEMIND_ADMIN_TOKEN", "")
    if not token:
        fail("HIVEMIND_ADMIN_TOKEN is not set", hint="set it to the token of `server { admin ... token }`")
    return ControlClient.over_tcp(url, token)


def found_proxy(policy: str | None) -> Path:
    """Return the socket of the only proxy that fits.

    Raises:
        NoProxy: There is none, or there are several.
    """
    from hivemind_trio.control import running_sockets, runtime_folder, socket_name

    if policy is not None and not Path(policy).is_file():
        raise NoProxy(f"{policy}: no such file", "name the policy that `hivemind-trio serve --policy` has")
    found = running_sockets(socket_name(policy, 0) if policy is not None else "")
    if len(found) == 1:
        return found[0]
    if found:
        raise NoProxy(f"{len(found)} proxies run; choose one with --socket", "", tuple(found))
    try:
        place = runtime_folder()
        if place.is_dir() and not os.access(place, os.R_OK | os.X_OK):
            raise NoProxy(f"{place} is another user's", OTHER_USER)
        folder = str(place)
    except (RuntimeError, PermissionError) as error:
        folder = str(error)
    which = f"no proxy of {policy} runs" if policy is not None else "no proxy runs"
    hint = f"`hivemind-trio serve{f' --policy {policy}' if policy is not None else ''}` starts one"
    hint = f"{hint}; name the socket of another user's with --socket FILE; with `server {{ admin off }}` there is none"
    raise NoProxy(f"{which} (looked in {folder})", hint)


def _described(path: Path) -> str:
    """Return policy and address of a proxy, as far as it answers."""
    from hivemind_trio.control import ControlClient, NotReachable, RequestRefused

    try:
        with ControlClient.at(path) as client:
            status = client.get("/v1/status")
    except (NotReachable, RequestRefused):
        return ""
    return f"{status['policy']['path']} at {status['address']}, process {status['pid']}"
