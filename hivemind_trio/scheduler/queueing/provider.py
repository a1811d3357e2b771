"""One provider's slots, and which lane is next.

Reservations first, then weights. A lane that holds less than its reserve takes any free slot. Other lanes take a slot
only if, after that, enough are free for what the others have reserved and not taken: reserves are kept hot.

Weights are served by start-time fair queueing (Goyal, Vin and Cheng, "Start-time Fair Queuing", 1996): every lane has a
virtual time, its `tag`, which a grant moves on by 1/weight, and among the lanes that could go the lowest is next. So
two lanes that always could differ in grants per weight by at most 1/weight of the one plus 1/weight of the other.
A lane that could not go, because nothing waited in it or because a cap held it back, is lifted to the lowest tag of
those that could: neither idleness nor being at a cap of its own earns a claim on the others.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final, final

import attrs

from hivemind_trio.dialects import dialect_of
from hivemind_trio.model import Api, Decision, Reason, Request
from hivemind_trio.policy import AimdSettings, LaneSettings, Objective, ProviderSettings, Renames, Timeouts
from hivemind_trio.scheduler.caching.model_residency import LoadedModels
from hivemind_trio.scheduler.caching.prompt_cache import PromptCacheModel
from hivemind_trio.scheduler.health.provider_health import ProviderHealth
from hivemind_trio.scheduler.limits.concurrency_limit import ConcurrencyLimit
from hivemind_trio.scheduler.limits.cost import Cost
from hivemind_trio.scheduler.limits.limit_group import LimitGroup
from hivemind_trio.scheduler.limits.rate_limits import RateLimits
from hivemind_trio.scheduler.limits.token_estimator import TokenEstimator
from hivemind_trio.scheduler.plans.plan_accounts import PlanAccounts
from hivemind_trio.scheduler.plans.plan_gate import PlanGate, plan_gate
from hivemind_trio.scheduler.protocol.ablation import ALL_PARTS, Features
from hivemind_trio.scheduler.protocol.beliefs import ProviderBeliefs
from hivemind_trio.scheduler.protocol.call import CallId
from hivemind_trio.scheduler.protocol.snapshot import PoolSnapshot, Standstill

from .drain_rate import DrainRate
from .entry import QueueEntry
from .lane import ProviderLane

UNKNOWN_API: Final = dialect_of(None).api

USUAL_NS: Final = 10 * 1_000_000_000
"""Assumed duration of an attempt before one has ended."""

LIMIT_HOLDS_NS: Final = 3_600 * 1_000_000_000
"""Age up to which a learned concurrency limit is begun with: after an hour the provider's load is another."""

TOKENS_HOLD_NS: Final = 30 * 86_400 * 1_000_000_000
"""Age up to which token estimates are begun with."""

ROUTES_MAX: Final = 1_024
"""Remembered for one provider: models are the callers' words."""

USUAL_OVER: Final = 8
"""Attempts after which what was before weighs about a third."""


@final
@attrs.define(eq=False)
class NextCall:
    """Next call of a provider, not yet granted. Nothing has changed yet."""

    waiter: QueueEntry
    lane: ProviderLane
    overdue: bool
    """True if it goes before its turn."""
    virtual: int
    """The lowest tag of the lanes that could go."""


@final
@attrs.define(eq=False)
class CallClass:
    """Class of calls with the same model, lane and limits group at a provider."""

    lane: ProviderLane
    group: LimitGroup
    quotas: RateLimits
    plan: PlanGate | None
    """None: the policy keeps no part of a plan from them."""
    model: str
    """As `LoadedModels` knows it, where they do not matter."""
    objective: Objective
    """Objective that orders jobs where such a call waits."""


@final
@attrs.define(eq=False)
class ProviderQueue:
    """Slots of one provider: in all, per limits group and per lane.

    `slots.limit` is the one figure that says how much the provider is trusted with: what the policy says, or within its
    bounds what AIMD has come to. While the circuit is open, slots are closed.
    """

    name: str
    health: ProviderHealth
    parts: Features = ALL_PARTS
    slots: ConcurrencyLimit = attrs.field(factory=ConcurrencyLimit, init=False)
    queue: int | None = attrs.field(default=None, init=False)
    """The bound of `waiting`."""
    waiting: int = attrs.field(default=0, init=False)
    pace: DrainRate = attrs.field(factory=DrainRate, init=False)
    paused: bool = attrs.field(default=False, init=False)
    """An operator holds its calls back."""
    estimates: TokenEstimator = attrs.field(factory=TokenEstimator, init=False)
    prefixes: PromptCacheModel = attrs.field(factory=PromptCacheModel, init=False)
    residents: LoadedModels = attrs.field(factory=LoadedModels, init=False)
    plans: PlanAccounts = attrs.field(factory=PlanAccounts, init=False)
    usual_ns: int = attrs.field(default=USUAL_NS, init=False)
    """Recent duration of an attempt."""
    opens_ns: int | None = attrs.field(default=None, init=False)
    """When a quota or a refusal lets a waiting call go, as of the last look."""
    short_of_retries: dict[CallId, None] = attrs.field(factory=dict, init=False)
    """Calls that rest until its retry budget has one for them, oldest first."""
    asked_to_wait: dict[CallId, None] = attrs.field(factory=dict, init=False)
    """Calls that rest because the provider has failed them and has said for how long; some may be in line by now."""
    granted_seq: int = attrs.field(default=-1, init=False)
    """The youngest call, by arrival, that was ever granted."""
    share: int | None = attrs.field(default=None, init=False)
    """Slots of this node, of those that several nodes share; None: it has all of them."""
    provider: ProviderSettings | None = attrs.field(default=None, init=False)
    """As the policy has it; None: it is gone."""
    api: Api = attrs.field(default=UNKNOWN_API, init=False)
    learns: bool = attrs.field(default=False, init=False)
    """True if rate-limit headers are believed."""
    _settings: Mapping[str, LaneSettings] = attrs.field(factory=dict, init=False)
    groups: dict[str | None, LimitGroup] = attrs.field(factory=dict, init=False)
    lanes: dict[str, ProviderLane] = attrs.field(factory=dict, init=False)
    """In file order, then lanes that are gone and still hold something."""
    _reserving: list[ProviderLane] = attrs.field(factory=list, init=False)
    """Lanes that something is reserved for."""
    _routes: dict[tuple[str | None, str, str, str], CallClass] = attrs.field(factory=dict, init=False)
    """Limits group, lane, model, account -> what such calls are held against."""
    _virtual: int = attrs.field(default=0, init=False)
    _stands_since_ns: int | None = attrs.field(default=None, init=False)
    """When calls began to wait in line while none was in flight; None: they do not."""
    _stood_ns: int = attrs.field(default=0, init=False)
    """Duration of the standstills that are over."""

    @property
    def is_account(self) -> bool:
        """True if it is one of several accounts, so that calls which wait for another may go here."""
        return self.provider is not None and bool(self.provider.account_of)

    @property
    def declared(self) -> bool:
        """True if the policy declares the provider."""
        return self.provider is not None

    def rename(self, renames: Renames) -> None:
        """Take the new names of a policy."""
        self.name = renames.swapped("provider", self.name)
        for lane in self.lanes.values():
            lane.rename(renames)
        self.lanes = renames.rekeyed("lane", self.lanes)
        self.plans.rename(renames)

    def load(
        self,
        provider: ProviderSettings | None,
        lanes: Mapping[str, LaneSettings],
        now_ns: int,
        alone: AimdSettings | None = None,
    ) -> None:
        """Take the settings of a new policy (None: the provider is gone) and start with empty queues.

        What is held stays held, under the same names.

        Args:
            alone: See `ProviderHealth.load`.
        """
        self.provider = provider
        self.api = provider.api if provider is not None else UNKNOWN_API
        self.learns = provider is not None and provider.learns
        self.queue = provider.queue if provider else None
        self.waiting = 0
        self.health.load(provider, alone)
        self.residents.load(provider.resident if provider else None)

        blocks = {block.glob: block for block in provider.groups} if provider else {}
        self.groups = {
            # Of what no block covers it is remembered what headers have told.
            glob: group
            for glob, group in self.groups.items()
            if group.slots.held or glob in blocks or glob is None
        }
        for glob in [*self.groups, *blocks]:
            self.group(glob).load(blocks.get(glob), now_ns, learns=self.learns)

        self._settings = lanes
        self._routes.clear()
        gone = [lane for name, lane in self.lanes.items() if name not in lanes and lane.slots.held]
        self.lanes = {name: self.lanes.get(name) or ProviderLane(name, self.parts, self.residents) for name in lanes}
        self.lanes |= {lane.name: lane for lane in gone}
        for name, lane in self.lanes.items():
            lane.load(lanes.get(name))
        self._share_out()
        self.apply()

    @property
    def trusted(self) -> int:
        """Slots that the provider is trusted with, or this node's share where that is less."""
        limit = self.health.limit
        return limit if self.share is None or self.share >= limit else self.share

    @property
    def limit(self) -> int:
        """Slots that there may be now: no refused one is used again until the other nodes have heard of it."""
        limit = self.trusted
        shared = self.health.shared
        if shared is not None and shared.link.kept is not None:
            limit = min(limit, shared.link.kept)
        return limit

    def apply(self) -> bool:
        """Bring the slots in line with what is known of the provider's health; whether anything has changed.

        Shares and reserves are of what there is now: 8 slots reserved out of 4 would shut everybody else out.
        """
        limit, closed = self.limit, Reason.PAUSED if self.paused else self.health.closed
        changed = limit != self.slots.limit or closed is not self.slots.closed
        if closed is not self.slots.closed:
            self.slots.close(closed)
        if limit != self.slots.limit:
            self._share_out()
        return changed

    def bounds(self, request: Request, given_up: int, swap_ns: int) -> Timeouts | None:
        """Return the timeouts of an attempt; None: the provider is gone.

        Args:
            request: As it is sent.
            given_up: Attempts of the call that were given up.
            swap_ns: How much later than usual its answer begins: to load a model is not to hang.
        """
        if self.provider is None:
            return None
        bounds = self.health.progress.bounds(request, self.provider.timeouts, self.provider.reaper, given_up)
        return attrs.evolve(bounds, first_byte_ns=bounds.first_byte_ns + swap_ns) if swap_ns else bounds

    def beliefs(self, now_ns: int) -> ProviderBeliefs:
        """Return what is learned of the provider, to be kept."""
        limit, doubling = self.health.learned or (None, True)
        return ProviderBeliefs(
            limit=limit,
            doubling=doubling,
            models=self.estimates.beliefs(),
            windows=tuple(one for glob, group in self.groups.items() for one in group.beliefs(glob, now_ns)),
            plans=self.plans.beliefs(now_ns),
        )

    def restore(self, beliefs: ProviderBeliefs, age_ns: int, now_ns: int) -> None:
        """Begin with what an earlier process learned, as far as it is likely to hold still."""
        if beliefs.limit is not None and age_ns <= LIMIT_HOLDS_NS:
            self.health.hint(beliefs.limit, doubling=beliefs.doubling)
            self.apply()
        if age_ns <= TOKENS_HOLD_NS:
            self.estimates.restore(beliefs.models)
        self.plans.restore(beliefs.plans, age_ns, now_ns)
        for window in beliefs.windows:
            if window.group in self.groups:
                self.groups[window.group].restore(window, age_ns, now_ns)

    def group(self, glob: str | None) -> LimitGroup:
        """One limits group; without a cap where the policy has no such block."""
        if glob not in self.groups:
            group = self.groups[glob] = LimitGroup(self.parts)
            group.load(None, 0, learns=self.learns)  # nothing has been taken of it
        return self.groups[glob]

    def route(self, treatment: Decision, model: str, account: str, now_ns: int) -> CallClass:
        """Return the class of such a call.

        Args:
            model: What it is sent with.
            account: The same of its credential, where that is the caller's own.
        """
        key = treatment.group, treatment.lane, model, account
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            group = self.group(treatment.group)
            provider, settings = self.provider, self._settings[treatment.lane]
            assert provider is not None, "no call is placed at a provider that is gone"
            route = self._routes[key] = CallClass(
                lane=self.lanes[treatment.lane],
                group=group,
                quotas=group.quotas(model, account, now_ns),
                plan=plan_gate(provider.plan, self.plans, treatment.lane, account, model),
                model=self.residents.name(model),
                objective=settings.objective or provider.objective,
            )
        return route

    def may_take(self, lane: ProviderLane) -> bool:
        """Return True if a free slot is not kept for another lane's reserve."""
        return not self._reserving or lane.slots.held < lane.reserve or self._spare() > 0

    @property
    def limit_is_binding(self) -> bool:
        """True if the concurrency limit is what blocks some lane.

        Free slots may be reserved for another lane, or exceed the part of this one. Other limits are not considered.
        """
        return bool(self.waiting) and any(
            lane.stands and (lane.has_its_part or (lane.slots.has_room and not self.may_take(lane)))
            for lane in self.lanes.values()
        )

    def next(self, now_ns: int) -> NextCall | None:
        """Return the next call that can be granted, or None; set `opens_ns` anew.

        O(lanes × groups + log waiting). Where models are changed, it is O(models) times that: of each model's calls the
        best, in the order of the lanes.
        """
        self.opens_ns = None
        if not self.waiting or not self.slots.has_room:
            return None
        residents = self.residents
        if not residents.enabled:
            return self._next_of(None, now_ns)
        claimed = self._claim(now_ns)
        if claimed is not None:
            return claimed
        riding = self._next_of(residents.in_memory(), now_ns)
        turn = self._next_of(residents.wanted(), now_ns)
        if turn is None or (riding is not None and turn.waiter.treatment.affinity_ns is not None):
            return riding
        if residents.may(turn.waiter.place.model):
            return turn
        residents.on_passed(turn.waiter, now_ns)
        return riding

    def look(self, now_ns: int) -> None:
        """Find out whether models yield to a claim by now: a call arrives, and would go at once."""
        if self.residents.enabled and self.slots.has_room:
            self._claim(now_ns)

    @property
    def holds(self) -> bool:
        """If one who waits here goes away, another may go."""
        return self.opens_ns is not None or self.residents.holding or self.is_account

    def _claim(self, now_ns: int) -> NextCall | None:
        """Return the next call of a model passed for too long that can be loaded; None: none can, and one may yield."""
        for model in self.residents.claims(now_ns):
            turn = self._next_of((model,), now_ns)
            if turn is not None:
                return turn if self.residents.make_room() else None
        return None

    def _next_of(self, models: Container[str] | None, now_ns: int) -> NextCall | None:
        """Return the next call among these models; None as models: all."""
        spare = self._spare() if self._reserving else 1  # there is room, or nobody would ask
        best: tuple[QueueEntry, ProviderLane] | None = None
        best_order, early = (False, 0), False
        virtual: int | None = None
        for lane in self.lanes.values():
            due = lane.slots.held < lane.reserve
            if not lane.waiting or (spare <= 0 and not due):
                continue
            found = lane.first(now_ns, models)
            if lane.opens_ns is not None and (self.opens_ns is None or lane.opens_ns < self.opens_ns):
                self.opens_ns = lane.opens_ns
            if found is None:
                continue
            tag = lane.tag if lane.tag > self._virtual else self._virtual
            if virtual is None or tag < virtual:
                virtual = tag
            order = (not due, tag)
            if best is None or order < best_order:
                best, best_order, early = (found, lane), order, lane.early
        return NextCall(*best, early, virtual) if best is not None and virtual is not None else None

    def take_turn(self, turn: NextCall) -> None:
        """Charge the lane of a call that goes."""
        waiter = turn.waiter
        turn.lane.charge(self._virtual, overdue=turn.overdue)
        self._virtual = turn.virtual
        if waiter.seq > self.granted_seq:
            self.granted_seq = waiter.seq

    def take_at_once(self, waiter: QueueEntry, lane: ProviderLane) -> None:
        """Charge the lane of a call that did not wait. Nobody else could go, or they would have gone."""
        self.take_turn(NextCall(waiter, lane, False, max(lane.tag, self._virtual)))

    def share_ns(self, quotas: RateLimits, cost: Cost, lasting_ns: int) -> int:
        """Return the dominant share of a call: the longest time for which it takes all of one resource."""
        # Of the most that there can be: what there is now moves, and early calls would be charged more than later ones.
        slots_ns = lasting_ns // (self.provider.limit if self.provider is not None else 1)
        return max(slots_ns, quotas.share_ns(cost)) if quotas.has_limits else slots_ns

    def on_lasted(self, lasting_ns: int) -> None:
        """Note the duration of an attempt that has ended."""
        self.usual_ns += (lasting_ns - self.usual_ns) // USUAL_OVER

    def stand(self, now_ns: int) -> None:
        """Take note of whether calls wait in line while none is in flight."""
        stands = not self.slots.held and bool(self.waiting) and any(lane.stands for lane in self.lanes.values())
        if stands and self._stands_since_ns is None:
            self._stands_since_ns = now_ns
        elif not stands and self._stands_since_ns is not None:
            self._stood_ns += now_ns - self._stands_since_ns
            self._stands_since_ns = None

    def _standstill(self, now_ns: int) -> Standstill | None:
        if self._stands_since_ns is None:
            return None
        if self.slots.closed is not None:
            reason, until_ns = self.slots.closed, self.health.wakes_ns
        else:
            lanes = [lane for lane in self.lanes.values() if lane.stands]
            opening = [lane for lane in lanes if self.opens_ns is not None and lane.opens_ns == self.opens_ns]
            reason, until_ns = (opening or lanes)[0].lacks(now_ns), self.opens_ns
        return Standstill(since_ns=self._stands_since_ns, reason=reason, until_ns=until_ns)

    def snapshot(self, now_ns: int) -> PoolSnapshot:
        """Return how it stands, and what is believed of the provider."""
        stood_ns = now_ns - self._stands_since_ns if self._stands_since_ns is not None else 0
        lanes = [lane for lane in self.lanes.values() if lane.declared or lane.slots.held]
        return PoolSnapshot(
            limit=self.trusted,
            inflight=self.slots.held,
            waiting=self.waiting,
            lanes_inflight={lane.name: lane.slots.held for lane in lanes},
            groups_inflight={glob: group.slots.held for glob, group in self.groups.items()},
            circuit=self.health.breaker.circuit,
            opens_ns=self.health.breaker.opens_ns,
            gates={
                (glob, model): gate
                for glob, group in self.groups.items()
                for model, gate in group.gates(now_ns).items()
            },
            aimd=self.health.aimd(now_ns),
            stands=self._standstill(now_ns),
            stood_ns=self._stood_ns + stood_ns,
        )

    def _share_out(self) -> None:
        limit = self.limit
        self.slots.resize(limit)
        kept = reserves(self._settings, limit, self.health.limit)
        for name, lane in self.lanes.items():
            lane.resize(limit, kept.get(name, 0))
        self._reserving = [lane for lane in self.lanes.values() if lane.reserve]

    def _spare(self) -> int:
        """Free slots that no reserve is waiting for.

        Negative while calls in flight use reserved slots, which happens only after a reload.
        """
        assert self.slots.limit is not None
        free = self.slots.limit - self.slots.held
        for lane in self._reserving:
            free -= lane.reserve_unused
        return free


def reserves(lanes: Mapping[str, LaneSettings], limit: int, whole: int) -> dict[str, int]:
    """Return the slots out of `limit` that each lane has first claim to: its reserve, but at most its own `max`.

    Where they ask for more than there is, the lanes are served in file order until nothing is left. One slot is left
    out whenever some lane would end up without any: reserves never shut a lane out of a provider for good.

    Args:
        lanes: All of them.
        limit: Slots of this node.
        whole: Slots of all nodes: a reserve in slots is theirs together, and this node keeps its part of it.
    """
    asked = {}
    for lane in lanes.values():
        cap = lane.cap(limit)
        reserve = lane.reserve.of(limit)
        if limit < whole and lane.reserve.ratio is None:
            reserve = reserve * limit // whole
        asked[lane.name] = min(reserve, limit if cap is None else cap)
    left = limit if all(asked.values()) and sum(asked.values()) <= limit else max(0, limit - 1)
    kept = {}
    for name, slots in asked.items():
        kept[name] = min(slots, left)
        left -= kept[name]
    return kept
