"""Sizes that no call reaches, and settings that need another: HM402, HM404, HM414, HM415, HM420, HM425, HM426.

Each is said only where it holds whatever calls come, and where the policy itself has written what it is about: the
language's own defaults are nobody's mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hivemind_trio.policy.compile.binder import SymbolTable
from hivemind_trio.policy.compile.lowering import DEFAULT_SERVER
from hivemind_trio.policy.diagnostics.diagnostic import Label, Severity
from hivemind_trio.policy.language.condition_typing import AllOf, Condition, Member, Relation
from hivemind_trio.policy.language.globs import any_matcher
from hivemind_trio.policy.language.unit_text import count, duration, size
from hivemind_trio.policy.program.program import DEFAULT_LANE, Program, StoreSettings
from hivemind_trio.policy.program.rate_limits import Dimension
from hivemind_trio.policy.schema import STORE_SETTINGS
from hivemind_trio.policy.source.span import Span

MUCH: Final = 1 << 30
"""Bytes."""

HOUR_NS: Final = 3_600_000_000_000

SHARED: Final = ("redis",)
"""Stores that several nodes see."""


def check_sizes(
    declarations: SymbolTable, conditions: Mapping[str, Mapping[str, Condition | None]], program: Program
) -> None:
    """Report what a policy without errors cannot hold, or holds for nothing."""
    _prompts(declarations, program)
    _queues(declarations, program)
    _affinity(declarations, program)
    _outputs(declarations, conditions["rule"], program)
    _forgetting(declarations, program)
    check_sharing(declarations, program)


def _outputs(declarations: SymbolTable, conditions: Mapping[str, Condition | None], program: Program) -> None:
    """Report a `max-output` that no model of its rule exceeds."""
    for rule in declarations.of("rule").values():
        for given in rule.settings.get("max-output", []):
            models = [one.value for one in rule.settings.get("model", [])] or _models(conditions.get(rule.name))
            prices = [program.price(model, None) for model in models]
            most = [None if price is None else price.max_output for price in prices]
            if most and all(one is not None and one <= given.value for one in most):
                declarations.report.warn(
                    "HM402",
                    f"this limit has no effect: {' and '.join(f'`{model}`' for model in models)} gives no more",
                    given.span,
                    help="make it smaller, or delete it",
                )


def _models(condition: Condition | None) -> Sequence[str]:
    """Return the models of which a call that meets the condition has one; empty: any."""
    match condition:
        case Relation(field="model", op="==", value=str(name)):
            return (name,)
        case Member(field="model", values=names):
            return [str(name) for name in names]
        case AllOf(items=items):
            return next(filter(None, map(_models, items)), ())
        case _:
            return ()


def check_nodes(declarations: SymbolTable) -> None:
    """Report several nodes that share nothing, and leases that lapse between two renewals."""
    server = declarations.of("server").get("")
    nodes = declarations.one(server, "nodes") if server is not None else None
    stores = declarations.of("store")
    if nodes is not None and nodes.value > 1 and not stores.keys() & set(SHARED):
        labels = tuple(Label(store.name_span, "local to one node") for store in stores.values())
        declarations.report.add(
            "HM415",
            "`nodes` above 1 needs a shared store",
            nodes.span,
            labels=labels,
            help="declare `store redis { url env(REDIS_URL) }`, or write `1`",
            replacement="1",
            is_safe_fix=False,
        )
    workers = declarations.one(server, "workers") if server is not None else None
    if workers is not None and workers.value != 1 and "memory" in stores:
        declarations.report.add(
            "HM415",
            "`workers` cannot share state that ends with each of them",
            workers.span,
            labels=(Label(stores["memory"].name_span, "local to one process"),),
            help="remove `store memory`: SQLite is the default; or write `1`",
            replacement="1",
            is_safe_fix=False,
        )
    alone = next(iter(declarations.of("jobs").values()), None)
    if workers is not None and workers.value != 1 and alone is not None:
        declarations.report.add(
            "HM415",
            "`workers` cannot share the jobs of agents: one process runs them",
            workers.span,
            labels=(Label(alone.name_span, "run by one process"),),
            help="write `1`, or serve the jobs by a proxy of their own",
            replacement="1",
            is_safe_fix=False,
        )
    for store in stores.values():
        lease = declarations.one(store, "lease")
        if lease is None:
            continue
        usual = StoreSettings()
        renew_ns, gone_ns = lease.options.get("renew", usual.renew_ns), lease.options.get("gone", usual.gone_ns)
        if renew_ns * 4 > gone_ns:
            declarations.report.add(
                "HM415",
                f"a node that reports every {duration(renew_ns)} may seem to have ended after {duration(gone_ns)}",
                lease.place("renew" if "renew" in lease.options else "gone"),
                labels=(Label(lease.span, "the lease"),),
                help="let `gone` be four times `renew` at least",
            )
        elif lease.value < gone_ns * 2:
            declarations.report.add(
                "HM415",
                f"a lease of {duration(lease.value)} is too short for `gone` {duration(gone_ns)}",
                lease.span,
                help="let the lease be twice `gone` at least",
            )


def check_sharing(declarations: SymbolTable, program: Program) -> None:
    """Report what several nodes do not share, and a part of a cap that is less than one slot."""
    store, server = declarations.of("store").get("redis"), declarations.of("server").get("")
    workers = declarations.one(server, "workers") if server is not None else None
    nodes = program.server.nodes * (program.server.workers or 1)
    if workers is not None and workers.value != 1 and store is None:
        _workers_apart(declarations, program, workers.span)
    if nodes > 1:
        _more_than_slots(declarations, program, nodes)
    if store is None:
        return
    apart = counted_apart(program, of_nodes=program.server.nodes > 1)
    _sessions_apart(declarations, program, "node", store.name_span)
    if apart:
        declarations.report.add(
            "HM429",
            f"each node counts {apart} for itself",
            store.name_span,
            severity=Severity.WARNING,
            labels=tuple(_places_apart(declarations, nodes)),
            help=f"nodes share budgets, and `concurrency` and rates of providers; declare one node's part of {nodes}",
        )
    for name, provider in program.providers.items():
        if provider.limit * program.store.local < nodes and name in declarations.of("provider"):
            declarations.report.add(
                "HM425",
                f"one of {nodes} nodes has less than one slot of {provider.limit} while the store is away",
                declarations.of("provider")[name].name_span,
                severity=Severity.WARNING,
                help=f"`outage local {program.store.local * 100:g}%` is divided by the nodes; raise it",
            )


def sessions_apart(who: str) -> str:
    """Return the message about rules that read sessions where each `who`, node or worker, has its own facts."""
    return f"each {who} knows only the calls of a session that it has served itself (`session.turns` and the like)"


def _sessions_apart(declarations: SymbolTable, program: Program, who: str, span: Span) -> None:
    """Report that conditions read facts of sessions which nodes or workers do not share."""
    if program.reads_sessions:
        declarations.report.add(
            "HM429",
            sessions_apart(who),
            span,
            severity=Severity.WARNING,
            help=f"keep each client at one {who} (one connection, or by its address), or conditions see too few turns "
            "and too little cost",
        )


def _joined(names: Sequence[str]) -> str:
    """Return names as a sentence has them."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _workers_apart(declarations: SymbolTable, program: Program, span: Span) -> None:
    """Report what several workers do not share."""
    apart = counted_apart(program)
    _sessions_apart(declarations, program, "worker", span)
    if apart:
        declarations.report.add(
            "HM429",
            f"each worker counts {apart} for itself",
            span,
            severity=Severity.WARNING,
            labels=tuple(_places_apart(declarations, program.server.workers)),
            help="workers share `concurrency` and rates of providers; declare one worker's part, or write `workers 1`",
        )


def _more_than_slots(declarations: SymbolTable, program: Program, nodes: int) -> None:
    """Report providers of which some node has no slot at any time."""
    for name, provider in program.providers.items():
        if provider.limit < nodes and name in declarations.of("provider"):
            declarations.report.add(
                "HM426",
                f"at most {provider.limit} of {nodes} nodes and workers serve at once: calls wait for the store",
                declarations.of("provider")[name].name_span,
                severity=Severity.INFO,
                help=f"raise `concurrency`, or run at most {provider.limit}",
            )


def _places_apart(declarations: SymbolTable, nodes: int) -> Iterator[Label]:
    """Yield the settings that hold for each node, with what all nodes together may use.

    Args:
        nodes: Number of nodes and workers; 0: not known.
    """
    for kind, setting in (("lane", "max"), ("agent", "concurrency")):
        for declared in declarations.of(kind).values():
            for given in declared.settings.get(setting, []):
                if isinstance(given.value, int):  # a part of a provider's slots is one of each node's share
                    most = f"up to {given.value * nodes} in all" if nodes else "this many in each worker"
                    yield Label(given.span, most)
    for declared in (*declarations.of("provider").values(), *declarations.of("agent").values()):
        for block in declared.settings.get("limits", []):
            if declared.kind == "agent":
                yield Label(block.span, "counted by each")
            for given in block.block.get("concurrency", []) if declared.kind == "provider" else ():
                yield Label(given.span, f"up to {given.value * nodes} in all" if nodes else "this many in each worker")


def counted_apart(program: Program, *, of_nodes: bool = False) -> str:
    """Return the settings that hold for each node or worker, as a sentence has them; empty: there are none.

    Args:
        of_nodes: Nodes have no supervisor, which keeps the leases of workers.
    """
    groups = [group for provider in program.providers.values() for group in provider.groups]
    agents = [*program.agents.values(), program.unknown]
    found = {
        "`concurrency` of `limits`": any(group.concurrency is not None for group in groups),
        "`max` of lanes": any(lane.max is not None and lane.max.ratio is None for lane in program.lanes.values()),
        "`concurrency` of agents": any(agent.concurrency is not None for agent in agents),
        "`limits` of agents": any(agent.limits for agent in agents),
        "`capacity` of resources": of_nodes and bool(program.resources),
        "`capacity` of jobs": of_nodes and bool(program.jobs.allow),
    }
    return _joined([name for name, there in found.items() if there])


def check_stores(declarations: SymbolTable) -> None:
    """Report settings of another kind of store, and a shared one without an address."""
    for store in declarations.of("store").values():
        if store.name in SHARED and "url" not in store.settings.keys() | store.unread:
            declarations.report.add(
                "HM428",
                f"`store {store.name}` needs a `url`",
                store.name_span,
                severity=Severity.ERROR,
                help="name it: `url env(REDIS_URL)`",
            )
        for name, given in store.settings.items():
            if name in STORE_SETTINGS[store.name]:
                continue
            kinds = [f"`store {kind}`" for kind, settings in STORE_SETTINGS.items() if name in settings]
            declarations.report.add(
                "HM103",
                f"`store {store.name}` takes no `{name}`",
                given[0].item.head.span,
                labels=(Label(store.name_span, "the kind of store"),),
                help=f"it belongs in {' or '.join(kinds)}",
            )


def _forgetting(declarations: SymbolTable, program: Program) -> None:
    """Report budgets that a restart begins anew."""
    store = declarations.of("store").get("memory")
    if store is None:
        return
    for budget in program.budgets.values():
        longest = max(budget.allowances, key=lambda one: one.window_ns)
        if longest.window_ns > HOUR_NS:
            declarations.report.add(
                "HM427",
                f"a restart forgets what was spent of budget `{budget.name}`",
                store.name_span,
                severity=Severity.INFO,
                labels=(Label(declarations.of("budget")[budget.name].name_span, longest.shown()),),
                help="leave `store` out: SQLite is the default, and keeps it",
            )


def _prompts(declarations: SymbolTable, program: Program) -> None:
    """Report a context that no window of a rate limit has room for: such a call is rejected."""
    for declared in declarations.of("model").values():
        glob, on = declared.name, declared.options.get("on")
        given = declarations.one(declared, "context")
        # A name that the glob stands for. What holds for it holds for some calls at least.
        model = glob.replace("*", "").replace("?", "x")
        if given is None:
            continue
        for name, provider in program.providers.items():
            price = program.price(model, name)
            if on not in (None, name) or price is None or price.context != given.value:
                continue
            group = next((one for one in provider.groups if one.glob == provider.group_of(model)), None)
            # A block for all models is no statement about the largest of them: most limits are below its context.
            if group is None or group.glob is None or (provider.serves and not any_matcher(provider.serves)(model)):
                continue
            for quota in group.quotas:
                if quota.dimension in (Dimension.INPUT, Dimension.TOKENS) and quota.amount < given.value:
                    place = _limit(declarations, name, group.glob, quota.dimension.value)
                    declarations.report.add(
                        "HM404",
                        f"a prompt of more than {count(quota.amount)} tokens fits no window of `{name}`, and `{glob}` "
                        f"reads {count(given.value)}",
                        place,
                        severity=Severity.INFO,
                        labels=(Label(given.span, "what the model reads"),),
                        help="raise the limit if the provider's is higher; larger calls are rejected at once (413)",
                    )
                    break


def _limit(declarations: SymbolTable, provider: str, glob: str | None, dimension: str) -> Span:
    """Return the place of a provider's limit."""
    blocks, _ = declarations.effective(declarations.of("provider")[provider], "limits")
    block = next(one for one in blocks if (one.args[0] if one.args else None) == glob)
    return block.block[dimension][0].span


def _queues(declarations: SymbolTable, program: Program) -> None:
    """Bodies of waiting calls, which are kept in memory, where the policy has made room for more than the default."""
    server, declared = program.server, declarations.of("server").get("")
    if declared is None:
        return
    queues = [lane.queue for lane in program.lanes.values()]
    waiting = server.max_waiting
    if DEFAULT_LANE in declarations.of("lane") and None not in queues:
        waiting = min(waiting, sum(queue for queue in queues if queue is not None))
    for setting, default in (("max-body", DEFAULT_SERVER.max_body), ("max-waiting", DEFAULT_SERVER.max_waiting)):
        given = declarations.one(declared, setting)
        if given is not None and given.value > default and waiting * server.max_body > MUCH:
            worst = f"{waiting * server.max_body / MUCH:,.0f} GiB"
            declarations.report.add(
                "HM414",
                f"up to {count(waiting)} calls of {size(server.max_body)} may be queued: up to {worst} of memory",
                given.span,
                severity=Severity.INFO,
                help="lower `max-body` or `max-waiting`, or give every lane a `queue`",
            )
            return


def _affinity(declarations: SymbolTable, program: Program) -> None:
    """Report `affinity` where no provider has `resident`."""
    if any(provider.resident is not None for provider in program.providers.values()):
        return
    for rule in declarations.of("rule").values():
        for given in rule.settings.get("affinity", []):
            declarations.report.warn(
                "HM420",
                "`affinity` has no effect: no provider has `resident`",
                given.item.head.span,
                help="give the provider `resident 1 swap 20s`, or delete `affinity`",
            )
