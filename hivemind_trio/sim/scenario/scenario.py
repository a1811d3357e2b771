"""A scenario: who calls, and what the providers are really like."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from itertools import chain
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.model.dates import date_on
from hivemind_trio.policy import Dimension as Declared
from hivemind_trio.policy import LimitGroupSettings, Program, Window
from hivemind_trio.sim.agents.fleet import Fleet
from hivemind_trio.sim.provider.profile import SECOND_NS, Traits
from hivemind_trio.sim.provider.token_bucket import Counting, Metered, Quota

from .limits_met import MetLimit
from .plans_met import PlansMet

HOUR_NS: Final = 3_600 * SECOND_NS

_SIM: Final = {
    Declared.REQUESTS: Metered.REQUESTS,
    Declared.INPUT: Metered.INPUT,
    Declared.OUTPUT: Metered.OUTPUT,
    Declared.TOKENS: Metered.TOKENS,
}
_COUNTING: Final = {
    Window.LEARN: Counting.BUCKET,
    Window.BUCKET: Counting.BUCKET,
    Window.FIXED: Counting.FIXED,
    Window.SLIDING: Counting.SLIDING,
}


@final
@attrs.frozen(kw_only=True)
class UpstreamSpec:
    """Real properties of some of the policy's providers."""

    provider: str = "*"
    """Glob over their names in the policy."""
    traits: Traits = attrs.field(factory=Traits)
    as_declared: bool = False
    """Caps and quotas are what the policy says they are; each of its `limits` blocks is a provider of its own."""
    random_phase: bool = False
    """Fixed windows begin anywhere, drawn from the seed."""


@final
@attrs.frozen(kw_only=True)
class Scenario:
    """A fleet of fleets and its providers. The same seed is the same work, whoever schedules it."""

    name: str = ""
    about: str = ""
    fleets: tuple[Fleet, ...] = ()
    upstreams: tuple[UpstreamSpec, ...] = ()
    """For each provider the first that fits; one without any is as quick and as good as the default traits are."""
    met: Mapping[str, MetLimit] = attrs.field(factory=dict)
    """Provider -> the limit that it showed to recorded agents; a provider that `upstreams` names has its own."""
    plans: PlansMet = attrs.field(factory=dict)
    """Plans of recorded accounts; a provider that `upstreams` names has its own."""
    until_ns: int = 24 * HOUR_NS
    """End of the run; unfinished work is left undone."""
    time: int = 10 * 60
    """Time of day at the beginning, in minutes since midnight."""
    date: str = date_on(weekday=1)
    policy: str | None = None
    """The text of a policy that fits, for who has none."""

    def upstream(self, provider: str) -> UpstreamSpec:
        """Return the properties of a provider of the policy, or of an account: else those of its provider."""
        owner = provider.partition(".")[0]
        own = (each for each in self.upstreams if "." in each.provider and fnmatchcase(provider, each.provider))
        shared = (each for each in self.upstreams if fnmatchcase(owner, each.provider))
        return next(chain(own, shared), UpstreamSpec(as_declared=True))

    def traits(self, program: Program, provider: str, group: str | None, seed: int) -> Traits:
        """Return the profile of the provider behind a policy's provider, for the models of one `limits` block."""
        upstream = self.upstream(provider)
        traits = upstream.traits
        declared = program.pools[provider]
        if upstream.as_declared:
            limits = next((each for each in declared.groups if each.glob == group), None)
            quotas = _declared(limits) if limits is not None else {}
            traits = attrs.evolve(traits, concurrency=declared.limit).limited_to(quotas)
            if provider in self.met:
                traits = self.met[provider].applied(traits)
            if provider in self.plans:
                plans = self.plans[provider]
                traits = attrs.evolve(traits, plan=plans.get("", ()), plans=tuple(plans.items()))
        if upstream.random_phase:
            chance = Random(f"{seed}/phase/{provider}")  # noqa: S311 - a simulation wants to be repeatable
            shifted = {
                dimension: attrs.evolve(quota, phase_ns=chance.randrange(quota.window_ns))
                for dimension, quota in traits.quotas.items()
                if quota.counting is Counting.FIXED
            }
            traits = traits.limited_to(shifted)
        return traits


def _declared(group: LimitGroupSettings) -> dict[Metered, Quota]:
    """Return of each dimension the quota with the longest window: a provider here has one for each."""
    found: dict[Metered, Quota] = {}
    for quota in group.quotas:
        of = _SIM[quota.dimension]
        if of not in found or quota.window_ns > found[of].window_ns:
            found[of] = Quota(limit=quota.amount, window_ns=quota.window_ns, counting=_COUNTING[quota.window])
    return found
