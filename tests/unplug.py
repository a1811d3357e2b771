"""Unplugs each feature of the proxy, one at a time, and shows that a test over a real socket notices.

    python -m tests.unplug                  each feature's own test, in `tests/e2e/test_features.py`; a minute
    python -m tests.unplug budgets lanes    some of them
    python -m tests.unplug --all            all tests that run in one process; which of them fail

It is a script and the plugin of pytest that it starts. A feature whose absence nobody notices is status 1.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final

import attrs
import pytest

from hivemind_trio.model import Reason
from hivemind_trio.model.addresses import LOOPBACK
from hivemind_trio.policy import LaneSettings, Program, ProviderSettings
from hivemind_trio.policy.compile import lowering
from hivemind_trio.policy.compile.codegen import compile_decide
from hivemind_trio.proxy import attempt, exchange
from hivemind_trio.proxy.active_policy import InForce
from hivemind_trio.proxy.exchange import Exchange
from hivemind_trio.proxy.hold import Patience
from hivemind_trio.proxy.plan_refusals import PlanRefusals
from hivemind_trio.proxy.request.caller_identity import Tokens
from hivemind_trio.scheduler import state
from hivemind_trio.scheduler.budgets.budgets import NO_CLAIM, Budgets
from hivemind_trio.scheduler.calls.waiting_call import rank
from hivemind_trio.scheduler.calls.waiting_room import WaitingCalls
from hivemind_trio.scheduler.decisions import account_choice, admission, completion, policy_decision, routing
from hivemind_trio.scheduler.health.aimd import Aimd
from hivemind_trio.scheduler.health.circuit_breaker import CircuitBreaker
from hivemind_trio.scheduler.limits.concurrency_limit import ConcurrencyLimit
from hivemind_trio.scheduler.limits.limit_group import LimitGroup
from hivemind_trio.scheduler.limits.rate_limits import RateLimits
from hivemind_trio.scheduler.plans.plan_accounts import PlanAccounts
from hivemind_trio.scheduler.plans.plan_gate import PlanGate
from hivemind_trio.scheduler.queueing import provider
from hivemind_trio.scheduler.queueing.agent_windows import AgentWindowTable
from hivemind_trio.scheduler.queueing.fair_share import Flow
from hivemind_trio.scheduler.queueing.lane import ProviderLane
from hivemind_trio.scheduler.queueing.sessions import SessionTable
from hivemind_trio.serve import ProxyServer
from tests.e2e import house

Part = tuple[Any, str, Callable[..., Any]]
"""A class or module, the name of a function in it, and what takes its place."""


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing, as a feature does that is wired to nothing."""


async def _as_it_is(_: Exchange, outgoing: Any, _treatment: Any) -> Any:
    return outgoing


def _room_for_all(self: ConcurrencyLimit, _limit: int | None) -> None:
    self.limit = None
    self.has_room = self.closed is None


async def _silent(_: Patience, wait: Callable[[], Any], _gives_up_s: float) -> Any:
    return await wait()


def _first_choice(program: Any, provider: str) -> Any:
    return iter([program.providers[provider]])


def _same_rank(_priority: int, *more: Any) -> Any:
    return rank(0, *more)


def _without_rules(*, rules: Any, **more: Any) -> Any:
    return compile_decide(rules=rules[:0], **more)


def _first_account(books: Any, call: Any, treatment: Any, _failed: Any) -> Any:
    provider = books.program.providers.get(treatment.provider)
    if provider is None or not provider.accounts:
        return treatment
    return account_choice.at_account(call, treatment, next(provider.pools()))


def _without_aging(priority: int, _aging_ns: int | None, *more: Any) -> Any:
    return rank(priority, None, *more)


_load_group: Final = LimitGroup.load
_agent: Final = Program.agent


def _group_without_slots(self: LimitGroup, *given: Any, **more: Any) -> None:
    _load_group(self, *given, **more)
    self.slots.resize(None)


def _agent_without_slots(self: Program, name: str) -> Any:
    return attrs.evolve(_agent(self, name), concurrency=None)


FEATURES: Final[dict[str, list[Part]]] = {
    "concurrency": [(ConcurrencyLimit, "resize", _room_for_all)],
    "lanes": [(ProviderLane, "charge", _nothing)],
    "reserves": [(provider, "reserves", lambda *_: {})],
    "slots_of_lanes": [(LaneSettings, "cap", _nothing)],
    "slots_of_agents": [(Program, "agent", _agent_without_slots)],
    "slots_of_models": [(LimitGroup, "load", _group_without_slots)],
    "priorities": [(state, "rank", _same_rank)],
    "aging": [(state, "rank", _without_aging)],
    "fair_shares": [(Flow, "begin", _nothing), (Flow, "settle", _nothing)],
    "budgets": [(Budgets, "claim", lambda *_: NO_CLAIM)],
    "rate_limits": [(RateLimits, "opens_ns", lambda _self, _cost, now_ns, _waiter=None: now_ns)],
    "plans": [(PlanAccounts, "on_read", _nothing)],
    "session_facts": [(SessionTable, "facts", lambda _self, call, _now_ns: call.request)],
    "holds": [(admission, "_blocked", lambda books, _call, _treatment, place: place.blocked(books.now_ns))],
    "plan_rules": [(policy_decision, "_plan_pools", lambda *_: ())],
    "plan_reserves": [
        (PlanGate, "opens_ns", lambda _self, now_ns: now_ns),
        (PlanGate, "reason", lambda *_: Reason.NONE),
    ],
    "plan_refusals": [(PlanRefusals, "get", _nothing), (PlanRefusals, "of_reset", _nothing)],
    "limits_of_accounts": [(LimitGroup, "_of_account", lambda self, *_: self._quotas)],
    "limits_of_agents": [(AgentWindowTable, "of", _nothing)],
    "accounts": [(routing, "choose", _first_account)],
    "keys_of_one_organisation": [(ProviderSettings, "keys_of", lambda self, _account: self.keys)],
    "retries": [(completion, "wants_retry", lambda *_: False)],
    "client_addresses": [(exchange, "client_address", lambda *_: LOOPBACK)],
    "max_output": [(Exchange, "_limited", _as_it_is)],
    "names_of_models": [(Program, "name_at", _nothing)],
    "retries_by_error_type": [(attempt, "error_types", lambda *_: ())],
    "circuit_breaker": [(CircuitBreaker, "_trips", lambda *_: False)],
    "fallbacks": [(Program, "chain", _first_choice)],
    "keep_alives": [(Patience, "_speaking", _silent)],
    "deadlines": [(WaitingCalls, "expired", _nothing)],
    "bounded_queues": [(WaitingCalls, "full_for", _nothing), (WaitingCalls, "full_lane", _nothing)],
    "adaptive_concurrency": [(Aimd, "on_ended", lambda *_, **__: False), (Aimd, "restart", _nothing)],
    "keys": [(InForce, "key", _nothing)],
    "tokens_of_agents": [(Tokens, "agent", _nothing)],
    "rules": [(lowering, "compile_decide", _without_rules)],
    "reload": [(ProxyServer, "use", _nothing)],
}
"""Feature -> its parts. Each has a test of its name in `tests/e2e/test_features.py`."""

ROOT: Final = Path(__file__).parents[1]
TESTS: Final = "tests/e2e/test_features.py"
EVERYTHING: Final = ["tests/e2e/test_features.py", "tests/e2e/test_fleet.py", "tests/e2e/test_sdks.py", "tests/proxy"]
IMPORTED: Final = (
    "xdist.plugin",
    "_hypothesis_pytestplugin",
    "schemathesis.pytest.plugin",
    "bench.plan_provider",
    "tests.e2e.house",
    "tests.e2e.control",
)
"""Modules that the tests of features and their plugins import, so that a fork need not."""

QUIETLY: Final = ["-p", "no:cacheprovider", "-q", "-n", "0", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
PATIENCE_S: Final = 4
"""For what never comes, as nothing does that a feature should have done."""


def pytest_configure() -> None:
    """Unplug what the script has named, before any test begins."""
    setattr(house, "PATIENCE_S", PATIENCE_S)  # noqa: B010 - it is final to all others
    for owner, name, substitute in FEATURES[os.environ["UNPLUG"]]:
        assert hasattr(owner, name), f"{owner} has no {name} any more"
        setattr(owner, name, substitute)


def run_tests(feature: str, tests: list[str], said: int) -> int:
    """Run tests without a feature, in this process, which is over then; what pytest says goes to a file."""
    for number in (1, 2):
        os.dup2(said, number)
    os.environ.update(UNPLUG=feature, PYTHONHASHSEED="0")
    status = pytest.main(["-p", "tests.unplug", *QUIETLY, *tests])
    sys.stdout.flush()
    return int(status)


def failing(features: list[str], tests: Callable[[str], list[str]], jobs: int) -> Iterator[tuple[str, list[str]]]:
    """Return each feature with the tests that fail without it, each in a fork of this process.

    A process of its own would import for 4 s of CPU what a test uses for 0.2 s.
    """
    running: dict[int, tuple[str, IO[bytes]]] = {}
    ahead = iter(features)
    while True:
        for feature in itertools.islice(ahead, jobs - len(running)):
            said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - its child writes to it
            pid = os.fork()
            if not pid:
                os._exit(run_tests(feature, tests(feature), said.fileno()))
            running[pid] = feature, said
        if not running:
            return
        pid, status = os.wait()
        feature, said = running.pop(pid)
        with said:
            said.seek(0)
            text = said.read().decode(errors="replace")
        found = re.findall(r"^(?:FAILED|ERROR) (\S+)", text, flags=re.MULTILINE)
        if os.waitstatus_to_exitcode(status) != bool(found):
            raise RuntimeError(f"pytest ended with status {status} without {feature}:\n{text}")
        yield feature, found


def main() -> int:
    """Unplug features and show which tests fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="*", choices=[*FEATURES, []], metavar="FEATURE", help=", ".join(FEATURES))
    parser.add_argument("--all", action="store_true", help="run all tests of these folders: " + ", ".join(EVERYTHING))
    parser.add_argument("--jobs", type=int, default=4, help="features at a time")
    options = parser.parse_args()
    os.chdir(ROOT)
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()
    unnoticed = 0
    for feature, found in failing(
        options.features or [*FEATURES],
        lambda feature: EVERYTHING if options.all else [f"{TESTS}::test_{feature}"],
        options.jobs,
    ):
        unnoticed += not found
        said = f"{len(found)} failed: {found[0]}" if found else "NOBODY NOTICES"
        print(f"{feature:24} {said}", flush=True)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
