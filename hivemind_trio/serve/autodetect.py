"""`serve` without a policy: one made from what this machine has.

The text goes through the same compiler as any policy, and `serve --print-policy` shows it, as a start for one's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs
import trio

from hivemind_trio.dialects import DIALECTS, KNOWN_BASES, KNOWN_NAMES
from hivemind_trio.model import Api
from hivemind_trio.policy import format_text
from hivemind_trio.upstream import Upstream, UpstreamError

OLLAMA_BASE: Final = KNOWN_BASES[KNOWN_NAMES["ollama"]]
OLLAMA_PATIENCE_S: Final = 0.5
"""A local server answers its version in milliseconds; a start must not wait for one that is not there."""

KEYS: Final = tuple((api.value, names) for api in Api if (names := DIALECTS[api].key_variables))
"""Provider -> the variables that its SDKs read, the preferred one first."""


@final
@attrs.frozen
class Found:
    """One provider, and how it was noticed."""

    provider: str
    source: str
    """For people: "ANTHROPIC_API_KEY is set"."""
    body: tuple[str, ...]
    """The settings of its declaration, one a line."""


def from_environment(environ: Mapping[str, str]) -> list[Found]:
    """Return the providers for which a key is set. The values are looked at only for being empty."""
    found = []
    for provider, names in KEYS:
        for name in names:
            if environ.get(name):
                found.append(Found(provider, f"{name} is set", (f"key env({name})",)))
                break
    return found


async def ollama(upstream: Upstream, environ: Mapping[str, str]) -> Found | None:
    """Ollama, if it answers where `OLLAMA_HOST` or its default says. Never raises for a server that is not there."""
    base = ollama_base(environ.get("OLLAMA_HOST", ""))
    with trio.move_on_after(OLLAMA_PATIENCE_S):
        try:
            async with upstream.send(base=base, method="GET", target=b"/api/version", headers=[], body=b"") as answer:
                if answer.status == 200:
                    return Found("ollama", f"it answers at {base}", (f'base "{base}"', "concurrency 2"))
        except UpstreamError:
            return None
    return None


def ollama_base(host: str) -> str:
    """`OLLAMA_HOST` as a URL: it may be `host`, `host:port` or a URL; a server's `0.0.0.0` is reached on loopback."""
    host = host.strip().rstrip("/")
    if not host:
        return OLLAMA_BASE
    scheme, _, rest = host.rpartition("://")
    name, colon, port = rest.rpartition(":")
    if not colon or not port.isdigit():
        name, port = rest, "11434"
    if name in ("", "0.0.0.0"):  # noqa: S104 - compared, not bound
        name = "127.0.0.1"
    return f"{scheme or 'http'}://{name}:{port}"


def policy_text(found: list[Found]) -> str:
    """Return a policy for these providers, in canonical form."""
    lines = ["# Made by `hivemind-trio serve` from what this machine has.", "hmp 1"]
    for one in found:
        lines += ["", f"provider {one.provider} {{", *(f"  {line}" for line in one.body), "}"]
    return format_text("\n".join(lines) + "\n")
