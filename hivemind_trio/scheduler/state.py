"""State of the scheduler, and the entry of a call into it. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Final, final

import attrs

from hivemind_trio.model import Decision, Reason, Request, Usage
from hivemind_trio.policy import (
    DEFAULT_RETRY,
    UNKNOWN_AGENT,
    ModelPrice,
    Objective,
    Program,
    Renames,
    RetrySettings,
    WhileOpen,
)
from hivemind_trio.scheduler.budgets.budget_account import BudgetAccount, Turns
from hivemind_trio.scheduler.budgets.budgets import (
    NO_CLAIM,
    Amounts,
    Budgets,
    InsufficientBudget,
    MissingCredit,
    Partition,
    Reservation,
    amounts_of,
    sent,
)
from hivemind_trio.scheduler.caching.account_homes import AccountHomes
from hivemind_trio.scheduler.caching.prompt_cache import LONG_TOKENS, PromptUser
from hivemind_trio.scheduler.calls.kept_places import KeptPositions
from hivemind_trio.scheduler.calls.placement import Placement
from hivemind_trio.scheduler.calls.running_call import RunningCall
from hivemind_trio.scheduler.calls.waiting_call import WaitingCall, rank
from hivemind_trio.scheduler.calls.waiting_room import WaitingCalls
from hivemind_trio.scheduler.calls.wall_clock import WallClock
from hivemind_trio.scheduler.health.billing import SpentKey
from hivemind_trio.scheduler.health.provider_health import ProviderHealth
from hivemind_trio.scheduler.limits.cost import NOTHING, Cost
from hivemind_trio.scheduler.limits.rate_limits import RateLimits
from hivemind_trio.scheduler.protocol.ablation import ALL_PARTS, Features
from hivemind_trio.scheduler.protocol.account_key import AccountKey
from hivemind_trio.scheduler.protocol.agent_key import AgentKey, agent_word
from hivemind_trio.scheduler.protocol.beliefs import Beliefs, ProviderBeliefs
from hivemind_trio.scheduler.protocol.budget_draw import (
    BudgetsAnswered,
    BudgetsCalled,
    BudgetsShared,
    BudgetsUnanswered,
)
from hivemind_trio.scheduler.protocol.call import Call, CallId
from hivemind_trio.scheduler.protocol.events import Command, Pausable
from hivemind_trio.scheduler.protocol.ledger import Correction, Draw, RestoredAccount, Spend
from hivemind_trio.scheduler.protocol.snapshot import Snapshot
from hivemind_trio.scheduler.queueing.agent import AgentState, LimitedAgents
from hivemind_trio.scheduler.queueing.agent_windows import AgentWindowTable
from hivemind_trio.scheduler.queueing.drain_rate import RETRY_MAX_NS
from hivemind_trio.scheduler.queueing.job_priority import JobOrdering
from hivemind_trio.scheduler.queueing.pauses import Pauses
from hivemind_trio.scheduler.queueing.provider import ProviderQueue
from hivemind_trio.scheduler.queueing.sessions import SessionTable
from hivemind_trio.scheduler.queueing.shared_providers import SharedProviders

USUAL_PRICE: Final = ModelPrice(
    glob="*",
    input=3_000_000,
    output=15_000_000,
    cache_read=300_000,
    cache_write=3_750_000,
    context=None,
    max_output=None,
)
"""Price by which calls weigh in a plan whose model has none."""

LEDGER_WAIT_NS: Final = 10_000_000_000
"""Time for which a call may wait for the ledger's disk before it is refused."""


@final
@attrs.define(eq=False)
class SchedulerState:
    """The counters of a program, who waits and who is in flight."""

    program: Program
    random: Random
    turns: Turns
    parts: Features = ALL_PARTS
    now_ns: int = attrs.field(default=0, init=False)
    arrivals: int = attrs.field(default=0, init=False)
    draining: bool = attrs.field(default=False, init=False)
    room: WaitingCalls = attrs.field(factory=WaitingCalls, init=False)
    let_through: dict[CallId, None] = attrs.field(factory=dict, init=False)
    """Waiting calls that an operator lets go next at their providers, in this order."""
    returns: KeptPositions = attrs.field(factory=KeptPositions, init=False)
    inflight: dict[CallId, RunningCall] = attrs.field(factory=dict, init=False)
    pools: dict[str, ProviderQueue] = attrs.field(factory=dict, init=False)
    """In file order, then providers that are gone and were still in use when the policy was loaded."""
    accounts: dict[str, tuple[ProviderQueue, ...]] = attrs.field(factory=dict, init=False)
    """Provider of the policy -> its accounts; itself, if it has none."""
    homes: AccountHomes = attrs.field(factory=AccountHomes, init=False)
    """The account that served each session last."""
    _each: tuple[ProviderQueue, ...] = attrs.field(default=(), init=False)
    """Values of `pools`: every event iterates over them."""
    jobs: JobOrdering = attrs.field(factory=JobOrdering, init=False)
    sessions: SessionTable = attrs.field(factory=SessionTable, init=False)
    clock: WallClock = attrs.field(factory=WallClock, init=False)
    asked_anew: dict[CallId, None] = attrs.field(factory=dict, init=False)
    """Held calls that may be held no more, in the order in which the rules are asked about them."""
    detours: bool = attrs.field(default=False, init=False)
    """Budgets, or providers that are down, may send calls elsewhere than the rules do."""
    budgets_released: dict[BudgetAccount, None] = attrs.field(factory=dict, init=False)
    """Accounts with held calls that may have room again."""
    settling: bool = attrs.field(default=False, init=False)
    """A policy was loaded and has not decided every call that waits, or calls that it or a pause has let go are still
    to be granted; until then no other call is."""
    unsettled: dict[CallId, WaitingCall] = attrs.field(factory=dict, init=False)
    """Calls that it has not decided yet, in order of arrival. They are in no index, and claim nothing."""
    latecomers: dict[CallId, Call] = attrs.field(factory=dict, init=False)
    """Calls that have arrived meanwhile. The time that it takes, and the listener, bound their number."""
    behind: bool = attrs.field(default=False, init=False)
    """More calls are to be decided again than one event may: time goes on with them at once."""
    pauses: Pauses = attrs.field(factory=Pauses, init=False)
    """Pauses of operators."""
    shared: SharedProviders = attrs.field(factory=SharedProviders, init=False)
    _agents: dict[AgentKey, AgentState] = attrs.field(factory=dict, init=False)
    """Only those with a call waiting or in flight."""
    limited: LimitedAgents = attrs.field(factory=LimitedAgents, init=False)
    agent_windows: AgentWindowTable = attrs.field(factory=AgentWindowTable, init=False)
    budgets: Budgets = attrs.field(init=False)
    _spends: list[Spend] = attrs.field(factory=list, init=False)
    """Claims that are over, for the ledger."""

    def __attrs_post_init__(self) -> None:
        self.budgets = Budgets(self.turns)
        self.load(self.program)

    def load(self, program: Program) -> None:
        """Point every counter at the settings of its name; nobody waits at this moment."""
        renames = Renames.between(self.program, program)
        if renames:
            self._rename(renames)
        self.program = program
        self.detours = bool(program.budgets) or any(
            provider.while_open is WhileOpen.FALLBACK or provider.accounts for provider in program.providers.values()
        )
        self.budgets.load(program, self.now_ns)
        gone = [pool for name, pool in self.pools.items() if name not in program.pools and pool.slots.held]
        self.pools = {
            name: self.pools.get(name) or ProviderQueue(name, ProviderHealth(self.random), self.parts)
            for name in program.pools
        }
        self.pools |= {pool.name: pool for pool in gone}
        self._each = tuple(self.pools.values())
        self.accounts = {
            name: tuple(self.pools[pool.name] for pool in provider.pools())
            for name, provider in program.providers.items()
        }
        for name, pool in self.pools.items():
            pool.paused = self._is_paused(name)
        self.shared.load(program, self.pools, self.now_ns)
        for flight in self.inflight.values():
            flight.place.pool.residents.found(flight.place.model)
        for pool in self.pools.values():
            pool.residents.trim(self.now_ns)
        for agent in [agent for agent in self._agents.values() if not agent.slots.held]:
            del self._agents[agent.key]
            agent.retire()
        self.agent_windows.load(program)
        for agent in self._agents.values():
            agent.load(program, self.agent_windows.of(agent.key, program, self.now_ns, self._agents))
        self._close_lanes()

    def ask_store(self) -> list[Command]:
        """Return what to ask the store that several nodes share now."""
        return [*self.shared.ask(self.now_ns), *self.ask_budgets()]

    def pause(self, kind: Pausable, name: str, *, paused: bool) -> None:
        """Hold back the calls of a provider, lane or agent, or no longer."""
        if paused:
            self.pauses.begin((kind, name), self.now_ns)
        else:
            self.pauses.end((kind, name), self.now_ns)
        match kind:
            case Pausable.PROVIDER:
                for pool in self.accounts.get(name, ()) or ((self.pools[name],) if name in self.pools else ()):
                    pool.paused = self._is_paused(pool.name)
                    pool.apply()
            case Pausable.LANE:
                self._close_lanes()
            case Pausable.AGENT:
                for agent in self._agents.values():
                    if agent.name == name:
                        agent.pause(self._agent_closed(agent))

    def pausable(self, waiter: WaitingCall) -> Iterator[tuple[Pausable, str]]:
        """Yield whatever an operator can pause to hold back the call."""
        place = waiter.place
        for name in {place.pool.name: None, place.pool.name.partition(".")[0]: None}:
            yield Pausable.PROVIDER, name
        yield Pausable.LANE, place.lane.name
        yield Pausable.AGENT, place.agent.name

    def _is_paused(self, pool: str) -> bool:
        """Return True if an operator holds back a provider, or the one that it is an account of."""
        return any((Pausable.PROVIDER, name) in self.pauses for name in (pool, pool.partition(".")[0]))

    def _close_lanes(self) -> None:
        for pool in self.pools.values():
            for name, lane in pool.lanes.items():
                lane.slots.close(Reason.PAUSED if (Pausable.LANE, name) in self.pauses else None)

    def _agent_closed(self, agent: AgentState) -> Reason | None:
        return Reason.PAUSED if (Pausable.AGENT, agent.name) in self.pauses else None

    def _rename(self, renames: Renames) -> None:
        """Every counter, by the name that it has from now on. What is in flight gives back to it all the same."""
        self.budgets.rename(renames, self.now_ns)
        self.agent_windows.rename(renames)
        self.shared.rename(renames)
        self.jobs.rename(renames)
        self.homes.rename(renames)
        self.pauses.rename(renames)
        for pool in self.pools.values():
            pool.rename(renames)
        self.pools = renames.rekeyed("provider", self.pools)
        for agent in self._agents.values():
            agent.key = renames.agent_key(agent.key)
        self._agents = {agent.key: agent for agent in self._agents.values()}
        self.inflight = {call_id: flight.renamed(renames) for call_id, flight in self.inflight.items()}

    def place(self, call: Call, treatment: Decision) -> Placement:
        """Return the counters that a call so treated needs room in."""
        assert treatment.provider is not None
        pool = self.pools[treatment.provider]
        declared = treatment.agent != UNKNOWN_AGENT
        key = (declared, treatment.agent if declared else call.caller)
        agent = self._agents.get(key)
        if agent is not None and agent.windows is not None:
            agent.windows.advance(self.now_ns)
        if agent is None:
            windows = self.agent_windows.of(key, self.program, self.now_ns, self._agents)
            agent = self._agents[key] = AgentState.of(key, self.program, windows, self.limited)
            agent.slots.close(self._agent_closed(agent))
        request = sent(call.request, treatment)
        route = pool.route(treatment, request.model, self.account(call, pool.name), self.now_ns)
        lane, quotas = route.lane, route.quotas
        team = self.program.teams.get(treatment.team)
        weight = team.weight if team is not None else 1
        share = lane.share(agent, treatment.team, weight, route.objective)
        model = route.model
        if pool.residents.enabled:
            model = pool.residents.name(self.program.name_at(request.model, pool.name) or request.model)
        heeds = call.prefix and request.tokens_in >= LONG_TOKENS and self.parts.prefixes
        return Placement(
            pool,
            lane,
            route.group,
            quotas,
            agent,
            share,
            self.cost_of(quotas, request, pool),
            request,
            model,
            pool.prefixes if heeds else None,
            route.objective,
            route.plan,
            # A retry has been counted when its call first started.
            agent.windows.within(pool.estimates.cost(request, pool.api), exact=request.tokens_counted > 0)
            if agent.windows is not None and request.attempt == 1
            else NOTHING,
        )

    def cost_of(self, quotas: RateLimits, request: Request, pool: ProviderQueue) -> Cost:
        """Return the estimated cost of the call in these rate limits."""
        # Of a provider whose headers are believed an answer may tell of a quota at any moment.
        return pool.estimates.cost(request, pool.api) if quotas.has_limits or pool.learns else NOTHING

    def whose(self, call: Call, treatment: Decision) -> Partition:
        """Return the parties whose budgets the call counts in."""
        declared = treatment.agent != UNKNOWN_AGENT
        provider = self.program.pools.get(treatment.provider or "") or self.program.providers[treatment.provider or ""]
        # A name, a session or a connection costs nothing, and neither does a credential that is not sent upstream.
        unproven = (call.address if provider.keys else call.credential or call.address) or call.caller
        return Partition(
            agent=agent_word((declared, treatment.agent if declared else unproven)),
            team=treatment.team,
            model=treatment.model or call.request.model,
            provider=provider.declared_name,
            key=f"{provider.keys_of(treatment.account)[0]}" if provider.keys else call.credential,
            session=call.job.partition("/")[0],
            unproven="" if call.request.token_agent is not None else unproven,
            request=call.request,
        )

    def account(self, call: Call, provider_name: str) -> str:
        """Return the account that a call is sent with: the caller's own credential; empty: the provider's key."""
        provider = self.program.pools.get(provider_name)
        return "" if provider is not None and provider.keys else call.credential

    def plan_weight(self, request: Request, pool: ProviderQueue, usage: Usage) -> float:
        """Return the weight of a call in a plan: its list price, in micro-dollars. Plans weigh models alike."""
        price = self.program.price(request.model, pool.name) or USUAL_PRICE
        return float(price.cost_of(usage))

    def lacks_plan(self, call: Call, place: Placement) -> None:
        """Note that a call is refused for a used-up plan: its lane wanted more than it could have."""
        pool = place.pool
        if pool.plans.known:
            expected = self.plan_weight(place.request, pool, pool.estimates.likely(place.request))
            pool.plans.on_refused(self.account(call, pool.name), place.lane.name, expected, self.now_ns)

    def billing_key(self, call: Call, treatment: Decision) -> SpentKey:
        """Return the key of the account that a provider's billing error is about."""
        paid_with = treatment.account or self.account(call, treatment.provider or "")
        return paid_with, treatment.model or call.request.model

    def waiter(
        self, call: Call, treatment: Decision, place: Placement, arrived_ns: int, seq: int, blocked: Reason
    ) -> WaitingCall:
        """Return a new waiting call, whose key has had its turn."""
        patience_ns = treatment.deadline_ns
        if place.pool.provider is not None and place.pool.provider.takes_turns:
            self.homes.chosen(treatment.sender or "")
        lane, objective = self.program.lanes[treatment.lane], place.objective
        likely = place.pool.estimates.likely
        key = self.jobs.key(objective, place.agent.key, call.job, place.request, likely, self.now_ns)
        prefixes = place.prefixes if place.prompts is not None else None
        return WaitingCall(
            call=call,
            seq=seq,
            arrived_ns=arrived_ns,
            treatment=treatment,
            deadline_ns=None if patience_ns is None else arrived_ns + patience_ns,
            place=place,
            rank=rank(
                treatment.priority, lane.aging_ns, key, arrived_ns if call.since_ns is None else call.since_ns, seq
            ),
            is_fair=objective is Objective.FAIR,
            blocked=blocked,
            since_ns=arrived_ns,
            thread=place.lane.thread(call, place.agent) if place.lane.sticky else "",
            claim=None if treatment.budgets else NO_CLAIM,
            warm_until_ns=prefixes.warm_until_ns(call.prefix, self.now_ns) if prefixes is not None else None,
        )

    def wake_early(self, followers: Iterable[PromptUser]) -> dict[str, ProviderQueue]:
        """Let those go on who waited for another's prompt. Return where."""
        there = {}
        for follower in followers:
            waiter = self.room.get(follower.call.id)
            if waiter is not None and waiter is follower:
                self.room.wake_early(waiter, self.now_ns)
                there[waiter.place.pool.name] = waiter.place.pool
        return there

    def disprove(self, served: RunningCall) -> dict[str, ProviderQueue]:
        """End the pauses that a provider asked for when it failed others: it serves one that was granted since.

        Each of them still has the back-off of its own class. Return where somebody is due now.
        """
        pool, model = served.place.pool, served.place.request.model
        for call_id in list(pool.asked_to_wait):
            waiter = self.room.waiters[call_id]
            if waiter.in_line or waiter.held_in is not None:
                del pool.asked_to_wait[call_id]
            elif waiter.place.request.model == model and waiter.since_ns <= served.granted_ns:
                del pool.asked_to_wait[call_id]
                waiter.due_ns = max(self.now_ns, waiter.unasked_due_ns or 0)
                waiter.asked = None
                self.room.wake_early(waiter, waiter.due_ns)
        return {waiter.place.pool.name: waiter.place.pool for waiter in self.wake()}

    def lend_retry(self, served: RunningCall) -> dict[str, ProviderQueue]:
        """Let one call go on that rests for the retry budget: its provider has served another since it failed.

        So no more attempts are added than it has just served. Return where somebody is due now.
        """
        short = served.place.pool.short_of_retries
        for call_id in list(short):
            waiter = self.room.waiters[call_id]
            if waiter.since_ns > served.granted_ns:
                continue
            del short[call_id]
            if waiter.rests_until_ns is not None and waiter.held_in is None:
                waiter.due_ns = max(self.now_ns, waiter.unbudgeted_due_ns or 0, waiter.stays_away_ns(waiter.place.pool))
                self.room.wake_early(waiter, waiter.due_ns)
                break
        return {waiter.place.pool.name: waiter.place.pool for waiter in self.wake()}

    def flight(self, waiter: WaitingCall) -> RunningCall:
        """Return the attempt that begins now."""
        assert waiter.claim is not None
        place = waiter.place
        return RunningCall(
            call=waiter.call,
            seq=waiter.seq,
            arrived_ns=waiter.arrived_ns,
            treatment=waiter.treatment,
            place=place,
            granted_ns=self.now_ns,
            waited_ns=waiter.waited_ns + self.now_ns - waiter.since_ns,
            claim=waiter.claim,
            started=waiter.started if place.start_cost is NOTHING else (self.now_ns, place.start_cost),
            share_ns=place.pool.share_ns(place.quotas, place.cost, place.pool.usual_ns),
            attempt=waiter.attempts + 1,
            uncounted=waiter.uncounted,
            given_up=waiter.given_up,
            swap_ns=place.pool.residents.swap_ns(place.model, self.now_ns) if place.pool.residents.enabled else 0,
        )

    def claim(self, waiter: WaitingCall) -> InsufficientBudget | MissingCredit | None:
        """Put aside what the call may take; or have it held, and say by what."""
        treatment, pool = waiter.treatment, waiter.place.pool
        if waiter.claim is NO_CLAIM:
            return None
        request = waiter.place.request
        most = amounts_of(pool.estimates.most(request), self.program.price(request.model, pool.name))
        claim = self.budgets.claim(treatment, self.whose(waiter.call, treatment), most, waiter.rank, self.now_ns)
        if isinstance(claim, Reservation):
            waiter.claim = claim
            return None
        waiter.held_in = claim.account
        if isinstance(claim, MissingCredit):
            self._await_ledger(waiter)
        else:
            waiter.blocked, waiter.ledger_until_ns = Reason.BUDGET, None
            waiter.rests_until_ns = claim.opens_ns(self.now_ns)
        return claim

    def _await_ledger(self, waiter: WaitingCall) -> None:
        """Hold the call until the ledger has written, for a while."""
        if waiter.ledger_until_ns is None:
            waiter.ledger_until_ns = self.now_ns + LEDGER_WAIT_NS
        waiter.blocked, waiter.rests_until_ns = Reason.STORE_WRITE, None
        if waiter.deadline_ns is None or waiter.deadline_ns > waiter.ledger_until_ns:
            waiter.deadline_ns = waiter.ledger_until_ns

    def unclaim(self, waiter: WaitingCall) -> None:
        """Release what the call has reserved in budgets, or its place among held calls."""
        if waiter.claim is not None:
            self.end_claim(waiter.call.id, waiter.claim, None)
        elif waiter.held_in is not None:
            self.mark_budget_released([waiter.held_in])

    def end_claim(self, call_id: CallId, claim: Reservation, spent: Amounts | None) -> None:
        """End a reservation; nothing may have been spent."""
        self.mark_budget_released(claim.end(spent, self.now_ns))
        if self.budgets.shared is not None:
            for account in claim.accounts:
                self.budgets.shared.look(account)
        if claim.booked:
            self._spends.append(Spend(call_id, claim.spent(spent)))

    def open_ledger(self, accounts: tuple[RestoredAccount, ...]) -> None:
        """Have a ledger keep the budgets from now on."""
        self.budgets.open(accounts, self.now_ns)

    def credit(self, key: AccountKey, amount: int) -> None:
        """Let calls claim what the ledger has made durable."""
        account = self.budgets.drawn(key, amount)
        if account is not None and account.held.first is not None:
            self.mark_budget_released([account])

    def set_spending(self, key: AccountKey, spent: int) -> list[Correction]:
        """Have so much of an account count as spent; return what the ledger is to note."""
        account = self.budgets.accounts.get(key)
        if account is None:
            return []
        changes = account.correct(spent, self.now_ns)
        if self.budgets.shared is not None and account.shared is not None:
            account.shared.order(spent)
            self.budgets.shared.look(account)
        if account.held.first is not None:
            self.mark_budget_released([account])
        return [Correction(key, changes)] if self.keeps_ledger else []

    def share_budgets(self, event: BudgetsShared) -> None:
        """Draw every budget from the store that several nodes share from now on."""
        self.budgets.share(event, self.now_ns)

    def on_budgets(self, event: BudgetsAnswered | BudgetsUnanswered | BudgetsCalled) -> list[Correction]:
        """Take what the store, or another node, says of budgets; return what the ledger is to note."""
        budgets = self.budgets
        if isinstance(event, BudgetsCalled):
            if budgets.shared is not None:
                budgets.shared.called(budgets.accounts.values(), closing=event.closing)
            return []
        released, corrections = budgets.on_answer(event, self.now_ns)
        self.mark_budget_released(released)
        return corrections if self.keeps_ledger else []

    def ask_budgets(self) -> list[Command]:
        """Return what to ask the store of budgets now."""
        ask = self.budgets.ask(self.now_ns)
        return [] if ask is None else [ask]

    def set_writable(self, writable: bool) -> None:
        """Hold calls that draw on the ledger while it cannot be written."""
        self.budgets.writable = writable
        if writable:
            self.mark_budget_released(
                account for account in self.budgets.accounts.values() if account.held.first is not None
            )

    def beliefs(self) -> dict[str, ProviderBeliefs]:
        """Return what is learned of each provider."""
        return {name: pool.beliefs(self.now_ns) for name, pool in self.pools.items() if pool.declared}

    def restore(self, beliefs: Beliefs, ages_ns: Mapping[str, int]) -> None:
        """Begin with what an earlier process learned."""
        for name, believed in beliefs.items():
            if name in self.pools:
                self.pools[name].restore(believed, ages_ns[name], self.now_ns)

    @property
    def keeps_ledger(self) -> bool:
        """Return True if a ledger is to be told of budgets."""
        return self.budgets.kept

    def ledger_commands(self) -> tuple[list[Spend], list[Draw]]:
        """Return what the ledger is to be told since the last time."""
        budgets = self.budgets
        spends, self._spends = self._spends, []
        draws, budgets.draws = budgets.draws, []
        return spends, draws

    def mark_budget_released(self, accounts: Iterable[BudgetAccount]) -> None:
        """Something has come back to these accounts."""
        self.budgets_released.update(dict.fromkeys(accounts))

    @property
    def waiters(self) -> Mapping[CallId, WaitingCall]:
        """Every call that waits and is admitted, decided by the policy of now or not yet."""
        return {**self.room.waiters, **self.unsettled} if self.unsettled else self.room.waiters

    def waiting(self, call_id: CallId) -> WaitingCall | None:
        """Return a call that waits, decided by the policy of now or not yet; None: there is none of this id."""
        return self.room.get(call_id) or self.unsettled.get(call_id)

    def leave(self, waiter: WaitingCall) -> None:
        """Remove a call that will not be served."""
        if self.unsettled.pop(waiter.call.id, None) is None:
            self.room.leave(waiter)
            self.unclaim(waiter)
        self.spare(waiter)
        self.keep_position(waiter)
        self.forget(waiter.place.agent)

    def unsettle(self, renames: Renames) -> None:
        """Take every call that waits out of the line, for another policy to decide it."""
        waiters = sorted([*self.room.waiters.values(), *self.unsettled.values()], key=lambda waiter: waiter.seq)
        for waiter in waiters:
            if waiter.call.id not in self.unsettled:
                self.room.leave(waiter)
                self.unclaim(waiter)
            waiter.call = waiter.call.renamed(renames)
        self.unsettled = {waiter.call.id: waiter for waiter in waiters}
        self.latecomers = {call_id: call.renamed(renames) for call_id, call in self.latecomers.items()}
        self.settling = True
        # Every call is asked about again now, whatever held it.
        self.budgets_released.clear()
        self.asked_anew.clear()

    def keep_position(self, of: WaitingCall | RunningCall, from_ns: int = 0) -> None:
        """Its client may come back with it, maybe not before `from_ns`."""
        since_ns = of.arrived_ns if of.call.since_ns is None else of.call.since_ns
        self.returns.keep(of.call.again, since_ns, of.seq, self.now_ns, from_ns=from_ns)

    def assign_sequence(self, call: Call) -> tuple[Call, int]:
        """Return a new call, and its number in the order of arrival: its old one, if it has come back."""
        kept = self.returns.take(call.again, self.now_ns) if call.again in self.returns.kept else None
        if kept is not None:
            return attrs.evolve(call, since_ns=kept.since_ns), kept.seq
        self.arrivals += 1
        return call, self.arrivals - 1

    def expected_wait_beyond_patience_ns(self, waiter: WaitingCall) -> int | None:
        """Return the expected wait of a new call if it is longer than its client's timeout.

        None: it is not, or unknown. The wait is the least that it can be.
        """
        patience_ns, place = waiter.call.patience_ns, waiter.place
        if patience_ns is None or not self.parts.patience:
            return None
        pool = place.pool
        opens_ns = pool.health.breaker.opens_ns or 0
        if place.quotas.restricts:
            opens_ns = max(opens_ns, place.quotas.opens_ns(place.cost, self.now_ns))
        if place.plan is not None:
            opens_ns = max(opens_ns, place.plan.opens_ns(self.now_ns))
        if place.agent.windows is not None and place.start_cost is not NOTHING:
            opens_ns = max(opens_ns, place.agent.windows.fits_ns(place.start_cost))
        swap_ns = pool.residents.swap_ns(place.model, self.now_ns) if pool.residents.enabled else 0
        if opens_ns > self.now_ns and opens_ns - self.now_ns + swap_ns > patience_ns:
            return opens_ns - self.now_ns + swap_ns
        if waiter.call.since_ns is not None or waiter.treatment.priority > self.program.lanes[place.lane.name].priority:
            return None  # it goes before most of those who wait
        # An agent with few calls is let in before one with many, so what others have in line is not all before it.
        ahead = min(place.lane.waiting, (place.agent.waiting + 1) * len(self._agents))
        wait_ns = place.lane.turns.least_ns(ahead)
        return wait_ns + swap_ns if wait_ns is not None and wait_ns + swap_ns > patience_ns else None

    def forget(self, agent: AgentState) -> None:
        """Callers come and go, and not all of them are declared."""
        if agent.waiting or agent.slots.held:
            return
        if self._agents.get(agent.key) is agent:  # not another of its name, after a reload
            del self._agents[agent.key]
            agent.retire()

    def spare(self, waiter: WaitingCall) -> None:
        """Give back what its failed attempt has taken of quotas that do not count it: its rest is over."""
        if waiter.spared is not None:
            (place, taken_ns), waiter.spared = waiter.spared, None
            place.quotas.spare(place.cost, taken_ns, self.now_ns)

    def wake(self) -> list[WaitingCall]:
        """Those whose retry is due now. Who was held by a budget is to be let in instead: see `budgets_released`."""
        woken = []
        while (waiter := self.room.wake(self.now_ns)) is not None:
            self.spare(waiter)
            if waiter.is_held:
                self.asked_anew[waiter.call.id] = None
            elif waiter.held_in is not None:
                self.mark_budget_released([waiter.held_in])
            else:
                woken.append(waiter)
        return woken

    def waited_ns(self, waiter: WaitingCall) -> int:
        """In all, its earlier attempts not included."""
        return waiter.waited_ns + self.now_ns - waiter.since_ns

    def retry(self, treatment: Decision, pool: ProviderQueue) -> RetrySettings:
        """Return the retry class: the rule's, or else the provider's."""
        name = treatment.retry or (pool.provider.retry if pool.provider is not None else DEFAULT_RETRY)
        # Of a class that a reload has taken away, what is in flight keeps the default.
        return self.program.retries.get(name) or self.program.retries[DEFAULT_RETRY]

    def refuses_while_open(self, pool: ProviderQueue) -> bool:
        """Return True if the policy rejects calls while the provider's circuit is open."""
        return pool.provider is not None and pool.provider.while_open is WhileOpen.REFUSE

    def retry_after_ns(self, waiter: WaitingCall, least_ns: int = 0) -> int:
        """Return the time that the provider's queue will take at its recent drain rate, 1 to 60 s."""
        pool = waiter.place.pool
        wait_ns = pool.pace.wait_ns(pool.waiting + 1, self.now_ns)
        wait_ns += pool.residents.swap_ns(waiter.place.model, self.now_ns)
        wait_ns = min(max(wait_ns, least_ns), RETRY_MAX_NS)
        # Upwards only, so that nobody is told to come back before there can be room.
        return wait_ns + self.random.randrange(wait_ns // 10 + 1)

    def wakeup_ns(self) -> int | None:
        """When time alone will next matter: for a deadline, a retry that is due, a circuit, a quota or a budget."""
        if self.behind:
            return self.now_ns
        earliest_ns = self.room.wakeup_ns()
        for pool in self._each:
            time_ns = pool.health.wakes_ns
            if time_ns is not None and (earliest_ns is None or time_ns < earliest_ns):
                earliest_ns = time_ns
            time_ns = pool.opens_ns
            if time_ns is not None and (earliest_ns is None or time_ns < earliest_ns):
                earliest_ns = time_ns
        time_ns = self.limited.wakes_ns()
        if time_ns is not None and (earliest_ns is None or time_ns < earliest_ns):
            earliest_ns = time_ns
        time_ns = self.shared.wakes_ns()
        if time_ns is not None and (earliest_ns is None or time_ns < earliest_ns):
            earliest_ns = time_ns
        time_ns = self.budgets.shared.wakes_ns() if self.budgets.shared is not None else None
        if time_ns is not None and (earliest_ns is None or time_ns < earliest_ns):
            earliest_ns = time_ns
        return earliest_ns

    def release_agents(self) -> dict[str, ProviderQueue]:
        """Return where calls of agents with limits may go now that did not fit before."""
        lines = self.limited.look(self.now_ns)
        there = [self.room.waiters[line.first_id].place.pool for line in lines]
        return {pool.name: pool for pool in there}

    def stand(self) -> None:
        """Take note, after an event, of the providers at which calls wait and nothing is in flight."""
        for pool in self._each:
            pool.stand(self.now_ns)

    def snapshot(self) -> Snapshot:
        """Return a frozen view of the state."""
        return Snapshot(
            now_ns=self.now_ns,
            program_hash=self.program.hash,
            draining=self.draining,
            pools={
                pool.name: pool.snapshot(self.now_ns)
                for pool in self.pools.values()
                if pool.declared or pool.slots.held
            },
            paused=self.pauses.of_now(),
            lanes_waiting={name: self.room.in_lane(name) for name in self.program.lanes},
            agent_limits=tuple(self.agent_windows.snapshots(self.now_ns)),
            agents=len(self._agents),
            inflight=len(self.inflight),
            waiting=len(self.room) + len(self.unsettled) + len(self.latecomers),
            held=len(self.room.held) + sum(waiter.is_held for waiter in self.unsettled.values()),
        )
