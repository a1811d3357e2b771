"""One provider: its limits, what is believed of it, its circuit, and its models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, final

import attrs

from hivemind_trio.model import shown_credential
from hivemind_trio.policy import Program, ProviderSettings, TokenEstimate
from hivemind_trio.scheduler import AimdSnapshot, BucketSnapshot, GateSnapshot, PoolSnapshot

from .history import AttemptSum
from .operated import SECOND_NS, Operated, seconds
from .problems import OperationFailed, ProblemKind
from .views import (
    BucketView,
    CircuitTurnView,
    ConcurrencyBeliefView,
    GateView,
    PlanView,
    ProviderDetailView,
    ProviderModelView,
    ProviderView,
    RateLimitView,
)

PLANS_MAX: Final = 50
"""Shown, the fullest first."""
_CIRCUITS: Final = ("closed", "half-open", "open")
"""The best first."""


@final
@attrs.frozen
class WhichProvider:
    """A provider by its name, or one of its accounts (`claude.prod`)."""

    name: str


def pools_of(program: Program, name: str) -> tuple[str, ...]:
    """Return the pools that a provider's or an account's name stands for; empty: the policy has no such name."""
    return tuple(pool for pool, settings in program.pools.items() if name in _names(settings))


def senders_of(program: Program, name: str) -> frozenset[str]:
    """Return the names under which calls wait for a provider or an account, and are sent.

    An account whose limits others share stands for their calls, too: they hold its slots.
    """
    found = {name}
    for settings in program.pools.values():
        if name in (settings.name, settings.declared_name):
            found |= {settings.name, *settings.shared_by}
    return frozenset(found)


def no_provider(program: Program, name: str) -> OperationFailed:
    """Return the failure for a name that the policy does not have, with those that there are."""
    known = []
    for provider in program.providers.values():
        accounts = ", ".join(f"{provider.name}.{account.name}" for account in provider.accounts)
        known.append(f"{provider.name} (accounts {accounts})" if accounts else provider.name)
    message = f"the policy has no provider `{name}`; it has {', '.join(known) or 'none'}"
    return OperationFailed(ProblemKind.NO_SUCH_RESOURCE, message)


def _names(pool: ProviderSettings) -> tuple[str, ...]:
    """Return every name that stands for a pool or for more."""
    return (pool.declared_name, pool.name, *pool.shared_by)


def provider(proxy: Operated, which: WhichProvider) -> ProviderDetailView:
    """Return one provider: limits, beliefs about it, changes of its circuit, and its models in the last hour."""
    pools = proxy.engine.snapshot().pools
    names = pools_of(proxy.engine.program, which.name) or (which.name,)
    details = [_detail(proxy, name, pools[name]) for name in names if name in pools]
    if not details:
        raise no_provider(proxy.engine.program, which.name)
    return details[0] if len(details) == 1 else of_accounts(which.name, details)


def _detail(proxy: Operated, name: str, pool: PoolSnapshot) -> ProviderDetailView:
    return ProviderDetailView(
        provider=provider_view(proxy, name, pool),
        concurrency=_concurrency(proxy, pool.aimd) if pool.aimd is not None else None,
        gates=tuple(_gate(proxy, *key, gate) for key, gate in pool.gates.items()),
        circuit=tuple(
            CircuitTurnView(
                at=proxy.at(turn.at_ns),
                circuit=turn.circuit.value,
                because=str(turn.because) if turn.because is not None else None,
            )
            for turn in proxy.providers.turns.get(name, ())
        ),
        models=tuple(_models(proxy, name)),
    )


def of_accounts(name: str, accounts: Sequence[ProviderDetailView]) -> ProviderDetailView:
    """Return a provider that has limits, beliefs and a circuit for each of several accounts."""
    views = [one.provider for one in accounts]
    first = min(views, key=lambda one: _CIRCUITS.index(one.circuit))  # one that takes calls is enough
    probes = [view.probe_at for view in views if view.circuit == first.circuit and view.probe_at is not None]
    failed = [view.estimate_error for view in views if view.estimate_error is not None]
    plans = sorted((plan for view in views for plan in view.plans), key=lambda one: -one.used)
    return ProviderDetailView(
        provider=attrs.evolve(
            first,
            name=name,
            inflight=sum(view.inflight for view in views),
            limit=sum(view.limit for view in views),
            learned=any(view.learned for view in views),
            waiting=sum(view.waiting for view in views),
            limits=(),
            probe_at=min(probes, default=None),
            plans=tuple(plans[:PLANS_MAX]),
            shared_by=(),
            estimate_error=next(iter(failed), None),
        ),
        concurrency=None,
        gates=(),
        circuit=(),
        models=(),
        accounts=tuple(accounts),
    )


def provider_view(proxy: Operated, name: str, pool: PoolSnapshot) -> ProviderView:
    """Return a provider's slots and health."""
    settings = proxy.engine.program.pools.get(name)
    counts = settings is not None and settings.estimate is not TokenEstimate.LEARNED
    return ProviderView(
        name=name,
        inflight=pool.inflight,
        limit=pool.limit,
        learned=pool.aimd is not None,
        waiting=pool.waiting,
        circuit=pool.circuit.value,
        probe_at=proxy.at(pool.opens_ns),
        limits=tuple(
            RateLimitView(
                group=group,
                model=model,
                measure=str(bucket.dimension),
                window_s=seconds(bucket.window_ns),
                limit=bucket.limit,
                used=bucket.limit - bucket.left,
                declared=bucket.declared,
            )
            for (group, model), gate in pool.gates.items()
            for bucket in gate.buckets
        ),
        plans=tuple(_plans(proxy, name))[:PLANS_MAX],
        shared_by=settings.shared_by if settings is not None else (),
        estimate=str(settings.estimate) if settings is not None else "learned",
        estimate_error=proxy.door.counts.errors.get(settings.declared_name)
        if settings is not None and counts
        else None,
    )


def _plans(proxy: Operated, provider: str) -> Iterable[PlanView]:
    """Yield the windows of accounts' plans, the fullest first."""
    now_ns = proxy.engine.now_ns()
    found = [(window, plan) for plan in proxy.engine.plans(provider) for window in plan.windows]
    for window, plan in sorted(found, key=lambda one: -one[0].used):
        yield PlanView(
            account=shown_credential(plan.account) or None,
            window=window.name,
            span=str(window.span),
            models=window.models or None,
            used=window.used / 1e6,
            resets_at=proxy.at(None if window.resets_ns is None else now_ns + window.resets_ns),
            overage=plan.overage,
        )


def _concurrency(proxy: Operated, belief: AimdSnapshot) -> ConcurrencyBeliefView:
    return ConcurrencyBeliefView(
        accepts=belief.cap,
        accepts_until_at=proxy.at(belief.cap_until_ns),
        stays_until_at=proxy.at(belief.stays_until_ns),
    )


def _gate(proxy: Operated, group: str | None, model: str | None, gate: GateSnapshot) -> GateView:
    return GateView(
        group=group,
        model=model,
        inflight=gate.inflight,
        holds_until_at=proxy.at(gate.hold_until_ns),
        believed=not gate.disbelieved,
        rate_per_s=round(gate.rate_per_s, 3) if gate.rate_per_s is not None else None,
        allowed=gate.allowed,
        probes_refused=gate.probes_refused,
        evidence_age_s=seconds(gate.evidence_age_ns) if gate.evidence_age_ns is not None else None,
        limits=tuple(_bucket(one) for one in gate.buckets),
    )


def _bucket(bucket: BucketSnapshot) -> BucketView:
    return BucketView(
        measure=str(bucket.dimension),
        window_s=seconds(bucket.window_ns),
        kind=str(bucket.kind),
        limit=bucket.limit,
        used=bucket.limit - bucket.left,
        foreign=bucket.foreign,
        declared=bucket.declared,
    )


def _models(proxy: Operated, name: str) -> Iterable[ProviderModelView]:
    inflight = Counter(model for provider, model in proxy.providers.inflight.values() if provider == name)
    known = dict(proxy.providers.of_hour(name, proxy.engine.now_ns()))
    for model in (*known, *(one for one in inflight if one not in known)):
        one = known.get(model, AttemptSum())
        yield ProviderModelView(
            model=model,
            inflight=inflight[model],
            attempts=one.attempts,
            refused=one.refused,
            failed=one.failed,
            tokens_in=one.tokens_in,
            cached=one.cached,
            tokens_out=one.tokens_out,
            begun=one.first_bytes,
            first_byte_s=round(one.first_bytes_ns / one.first_bytes / SECOND_NS, 3) if one.first_bytes else None,
        )
