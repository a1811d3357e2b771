"""Operations on the policy: what is in force, what its file would change, and a reload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, final

import attrs
import trio

from hivemind_trio.policy import diff, diff_object, render, render_diff
from hivemind_trio.wire import apis_of

from .operated import Facts, NoArguments
from .policy_keeper import PolicyKeeper, ReadPolicy
from .problems import OperationFailed, ProblemKind
from .views import PolicyDiffView, PolicySourceView, ReloadView

PREFIX_MIN: Final = 8
"""Characters of a hash that stand for it, as the log shows it."""


@final
@attrs.frozen(kw_only=True)
class ReloadWhat:
    """Condition of a reload."""

    if_match: str | None = None
    """`If-Match`: hashes of which one must be in force, each or 8 or more of its first characters, with commas between
    them; `*` and null: any policy."""


class PolicyHolder(Protocol):
    """A running proxy, of one process or of several, as far as its policy goes."""

    @property
    def facts(self) -> Facts:
        """Facts of the process."""
        ...

    @property
    def policy(self) -> PolicyKeeper:
        """Keeper of the policy."""
        ...

    @property
    def policy_hash(self) -> str:
        """Hash of the policy in force."""
        ...

    @property
    def note(self) -> Callable[[str, str, str, str], None]:
        """Told of every change: action, subject, who asked for it, and details."""
        ...


def policy(proxy: PolicyHolder, _: NoArguments) -> PolicySourceView:
    """Return the policy in force: its hash and the text of its files. Secrets are references in it."""
    checked = proxy.policy.running().checked
    texts: Mapping[str, str] = {source.name: source.text for source in checked.sources}
    return PolicySourceView(path=proxy.facts.policy, hash=proxy.policy_hash, files=dict(texts))


async def policy_diff(proxy: PolicyHolder, _: NoArguments) -> PolicyDiffView:
    """Return what a reload would change now: settings, decisions about calls, and state that is reset."""
    running = proxy.policy.running()
    new = await trio.to_thread.run_sync(proxy.policy.read)
    if not new.good:
        raise _rejected("the policy file has errors", "", _shown(new))
    compared = await trio.to_thread.run_sync(
        lambda: diff(running.checked, new.checked, apis_of=apis_of), abandon_on_cancel=True
    )
    found: dict[str, Any] = diff_object(compared)
    program = new.checked.program
    assert program is not None, "a good policy has one"
    return PolicyDiffView(
        old=proxy.policy_hash, new=program.hash, text=render_diff(compared, "text", color=False), diff=found
    )


async def reload(proxy: PolicyHolder, what: ReloadWhat, by: str) -> ReloadView:
    """Read the policy's file again, and run on it if it has no errors. The running policy stays if it has."""
    before = proxy.policy_hash
    if what.if_match is not None and not _names(what.if_match, before):
        message = f"the policy in force is {before[:PREFIX_MIN]}, and not {what.if_match[:66]}; nothing was changed; "
        message += f"a hash is named by {PREFIX_MIN} or more of its first characters"
        raise OperationFailed(ProblemKind.PRECONDITION_FAILED, message)
    if proxy.policy.reload is None:
        raise OperationFailed(ProblemKind.CONFLICT, "the proxy is starting, or reads its policy only once")
    await proxy.policy.reload()
    result = proxy.policy.result()
    after = proxy.policy_hash
    proxy.note("reload", proxy.facts.policy, by, result.error or after[:PREFIX_MIN])
    if result.error:
        raise _rejected(result.error, result.help, result.diagnostics)
    return ReloadView(hash=after, before=before, changed=after != before)


def _names(if_match: str, policy_hash: str) -> bool:
    """Return True if a condition names this policy (RFC 9110, section 13.1.1)."""
    tags = [tag.strip().strip('"') for tag in if_match.split(",")]
    return "*" in tags or any(len(tag) >= PREFIX_MIN and policy_hash.startswith(tag) for tag in tags)


def _rejected(error: str, help_text: str, diagnostics: tuple[str, ...]) -> OperationFailed:
    message = f"{error}; the running policy stays" + (f"; {help_text}" if help_text else "")
    return OperationFailed(ProblemKind.POLICY_REJECTED, message, diagnostics)


def _shown(read: ReadPolicy) -> tuple[str, ...]:
    return tuple(render([read], "short", color=False).splitlines())
