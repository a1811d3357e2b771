"""What can be run over sockets, by name: scenarios with a policy of their own, and the evaluation's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import resources

from bench.simulated.ablation import Switches, ablated, of_the_paper
from bench.simulated.grid import cells, grid
from bench.simulated.worlds import (
    AGENTRM,
    PROXY,
    REGIMES,
    agentrm,
    compiled,
    hinted,
    own_policy,
    paper,
    referred,
    shipped,
    streamed,
)
from hivemind_trio.sim import Scenario

from .obstacles import obstacles
from .runs import Case
from .short import SHORT


class CannotRun(Exception):  # noqa: N818 - it becomes a message
    """A name that nothing can be made of over sockets, and why."""


def cases(named: Sequence[str]) -> list[Case]:
    """What these names stand for. Raises CannotRun."""
    found = [case for name in named for case in _cases(name)]
    for case in found:
        for why in obstacles(case.program, case.scenario):
            raise CannotRun(f"`{case.name}` cannot be run over sockets: {why}")
    return found


def _cases(name: str) -> list[Case]:
    match name:
        case "paper":
            return [_own(each) for each in paper()]
        case "regimes":
            return list(_compared(REGIMES))
        case "agentrm":
            return [
                Case(scenario=each, program=program, policy=ordering)
                for each in (shipped(f"agentrm-{one}") for one in AGENTRM)
                for ordering, program in agentrm(each).items()
            ]
        case "ablation":
            return [
                Case(scenario=each, program=compiled(ablated(each, on)), policy=variant)
                for each in of_the_paper()
                for variant, on in Switches.variants(Switches.settings()).items()
            ]
        case "grid":
            raise CannotRun(
                f"`grid` is {len(_cells())} runs of ten minutes and more; over sockets take some of its cells by name, "
                f"such as `{_cells()[0].name}`"
            )
    if name in SHIPPED:
        scenario = shipped(name)
        if scenario.policy is None:
            raise CannotRun(f"scenario `{name}` has no policy, so there is nothing to run it with")
        return [_own(scenario)]
    there = {each.name: _own(each) for each in [*paper(), *(streamed(shipped(one)) for one in REGIMES)]}
    there |= {each.name: _own(each) for each in SHORT.values()}
    there |= {case.name: case for case in _cells()} if "declared" in name else {}
    if name not in there:
        raise CannotRun(f"there is no scenario `{name}`; there is {', '.join(_names(there))}")
    return [there[name]]


SHIPPED = tuple(
    sorted(
        each.name.removesuffix(".toml")
        for each in (resources.files("hivemind_trio.sim") / "scenarios").iterdir()
        if each.name.endswith(".toml")
    )
)


def _names(more: Iterable[str]) -> list[str]:
    with_policy = [name for name in SHIPPED if shipped(name).policy is not None]
    return ["paper", "regimes", "agentrm", "ablation", *dict.fromkeys([*with_policy, *more])]


def _own(scenario: Scenario) -> Case:
    return Case(scenario=scenario, program=own_policy(scenario))


def _compared(names: Sequence[str]) -> Iterator[Case]:
    for each in map(shipped, names):
        yield _own(each)
        for policy, program in referred(each).items():
            if policy != PROXY:
                yield Case(scenario=each, program=program, policy=policy)
        for policy, (saying, program) in hinted(each).items():
            yield Case(scenario=saying, program=program, policy=policy)


def _cells() -> list[Case]:
    found = []
    for cell in cells():
        scenario, program = grid(cell)
        found.append(Case(scenario=scenario, program=program))
    return found
