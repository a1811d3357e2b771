"""A policy as `serve` reads it: compiled, with the secrets of this machine."""

from __future__ import annotations

import hashlib
from typing import final

import attrs

from hivemind_trio.host import Secrets, folders, probe
from hivemind_trio.model import SecretSource
from hivemind_trio.policy import (
    Checked,
    Diagnostic,
    Files,
    Program,
    Severity,
    Source,
    check,
    check_bases,
    check_exposure,
    check_keys,
    check_secrets,
    refuses_unknown,
)
from hivemind_trio.store import PolicyFiles


@final
@attrs.frozen(kw_only=True)
class Loaded:
    """One reading of the policy; a `runtime.Loadable`."""

    checked: Checked
    diagnostics: tuple[Diagnostic, ...]
    """Diagnostics of the check and of this machine's secrets."""
    secrets: Secrets
    fingerprint: str
    directories: tuple[str, ...]
    """Folders to watch: of the policy's files, of secrets that are files, and of links on the way to them."""
    files: PolicyFiles
    """Text of the policy, for a journal that records."""
    _program: Program | None

    @property
    def good(self) -> bool:
        """True if it can be run."""
        return not any(one.severity is Severity.ERROR for one in self.diagnostics)

    @property
    def program(self) -> Program:
        """Program to run; only of a good result."""
        assert self._program is not None
        return self._program

    @property
    def sources(self) -> tuple[Source, ...]:
        """For the renderer."""
        return self.checked.sources


def load(path: str, files: Files, host: str | None = None, allowed: tuple[str, ...] = ()) -> Loaded:
    """Read, check, and resolve. Blocking; raises nothing.

    Args:
        host: Where the proxy listens, if the command line says so.
        allowed: Folders that may be included from, beside that of the policy.
    """
    checked = check(path, files, allowed=allowed)
    secrets = Secrets.resolve(checked.secret_spans)
    lacking = check_secrets(checked, probe, serving=True)
    exposure = check_exposure(checked, host) if host is not None else ()
    of_values = check_bases(checked, secrets), check_keys(checked, secrets)
    diagnostics = (*checked.diagnostics, *exposure, *lacking, *of_values[0], *of_values[1])
    program = checked.program
    if program is not None and host is not None:
        refuse = refuses_unknown(checked.declarations, host)
        program = attrs.evolve(program, server=attrs.evolve(program.server, refuse_unknown=refuse))
    paths = [*checked.paths, *(ref.name for ref in checked.secret_spans if ref.source is SecretSource.FILE)]
    directories = tuple(dict.fromkeys(folder for one in paths for folder in folders(one)))
    # A rotated key is a change, though no policy file was touched.
    values = "\0".join(f"{ref}\0{value}" for ref, value in secrets.items())
    fingerprint = hashlib.sha256(f"{checked.hash}\0{values}".encode()).hexdigest()
    return Loaded(
        checked=checked,
        diagnostics=diagnostics,
        secrets=secrets,
        fingerprint=fingerprint,
        files=PolicyFiles(
            hash=program.hash if program is not None else "",
            path=path,
            files={source.name: source.text for source in checked.sources},
            host=host,
        ),
        program=program,
        directories=directories,
    )
