"""Comparison of two policies by meaning: declarations, and decisions about calls.

What is declared is compared value by value (`settings.py`). Of the calls, examples are looked for where they are
likely (`solver/boundary_calls.py`) and where one is needed to be sure (`call_differences.py`); whatever is found is
decided with both programs, so that none is shown that is not treated differently.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from itertools import chain
from typing import Final, final

import attrs

from hivemind_trio.model import Decider, SecretRef, SecretSource
from hivemind_trio.policy.compile.checked import Checked
from hivemind_trio.policy.language.condition_typing import Condition
from hivemind_trio.policy.program.call_facts import ApisOf, Facts, request_of, shown, words
from hivemind_trio.policy.program.program import Program
from hivemind_trio.policy.program.renames import Renames
from hivemind_trio.policy.solver.boundary_calls import KNOWN_MODELS, candidates
from hivemind_trio.policy.solver.moments import Instead, alternatives, timed

from .call_differences import Parting, Triple
from .change import Change
from .decisions import NO, YES, treated
from .rebase import in_the_names_of
from .settings import plan

EXAMPLES_MAX: Final = 100
"""Looked for at most; nobody reads more."""


@final
@attrs.frozen(kw_only=True)
class DecisionChange:
    """One thing that is decided otherwise for a call."""

    setting: str
    """`lane`, `priority`, `verdict`, ..."""
    before: str
    after: str
    by_before: Decider | None
    """Decider before; None: it follows from the rest."""
    by_after: Decider | None

    @property
    def of_several(self) -> tuple[str, str, bool] | None:
        """`tag`, `warning` or `budget`, which one, and whether the call has it now; None: a call has one of these."""
        kind, _, name = self.setting.partition(" ")
        return (kind, name, self.after == YES) if name else None


@final
@attrs.frozen(kw_only=True)
class CallChange:
    """A call that is treated differently, standing for all for which the same changes."""

    example: tuple[str, ...]
    """The call in the words of `explain`; empty: a call that says nothing."""
    facts: Facts
    turns: tuple[DecisionChange, ...]


@final
@attrs.frozen(kw_only=True)
class Diff:
    """Everything that a new policy changes."""

    old: str | None
    """The policies' paths; None: there was no policy."""
    new: str
    changes: tuple[Change, ...]
    calls: tuple[CallChange, ...]
    complete: bool
    """False: there may be calls that are treated differently and for which no example was found."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.calls)


def diff(old: Checked | None, new: Checked, *, apis_of: ApisOf | None = None) -> Diff:
    """Compare two policies without errors.

    Args:
        old: None: there was none.
        apis_of: The dialects that a path may belong to; without it no example tells paths apart by dialect.
    """
    calls, complete = call_changes(old, new, apis_of=apis_of) if old is not None else ((), True)
    return Diff(
        old=old.paths[0] if old is not None else None,
        new=new.paths[0],
        changes=setting_changes(old, new),
        calls=calls,
        complete=complete,
    )


def setting_changes(old: Checked | None, new: Checked) -> tuple[Change, ...]:
    """Return the changed declarations, and the effect of a reload on running state. O(size of the policies)."""
    if old is None:
        return plan(None, _at_home(new))
    assert old.program is not None
    assert new.program is not None
    renames = Renames.between(old.program, new.program)
    return plan(_at_home(in_the_names_of(old, new)), _at_home(new), renames)


def call_changes(old: Checked, new: Checked, *, apis_of: ApisOf | None = None) -> tuple[tuple[CallChange, ...], bool]:
    """Return the calls that are decided differently, and whether all were examined.

    Likely calls are looked at first, since they make better examples than those that are found to settle a question.
    What is merely called otherwise now (`was OLD`) is the same; examples are in the names of the new policy.
    """
    old = in_the_names_of(old, new)
    assert old.program is not None
    assert new.program is not None
    programs = old.program, new.program
    compare = _Compare(programs, apis_of, alternatives(_conditions(old, new)))
    by_path = apis_of is not None
    parting = Parting(old, new, by_path=by_path)
    seen: set[Triple] = set()
    calls: list[CallChange] = []
    likely = candidates(parting.conditions, programs, by_path=by_path) if parting.may_part else ()
    for facts in chain(likely, parting.calls(seen)):
        fresh = compare.keys(facts) - seen
        if not fresh:
            continue
        if len(calls) == EXAMPLES_MAX:
            return tuple(calls), False
        # With the time at which it was asked, so that what holds at one time only is never shown without it.
        facts = compare.shortened(timed(facts), fresh)
        seen |= compare.keys(facts)
        named = shown(facts, programs)
        calls.append(CallChange(example=words(named), facts=named, turns=compare.turns(facts)))
    return tuple(calls), parting.complete


def _conditions(*policies: Checked) -> Iterator[Condition]:
    for checked in policies:
        yield from (one for table in checked.conditions.values() for one in table.values() if one is not None)


def _at_home(checked: Checked) -> Program:
    """Return the program with the files of its secrets relative to the policy, as the policy writes them."""
    program, folder = checked.program, posixpath.dirname(checked.paths[0])
    assert program is not None
    if not folder:
        return program

    def home(ref: SecretRef) -> SecretRef:
        return attrs.evolve(ref, name=ref.name.removeprefix(f"{folder}/")) if ref.source is SecretSource.FILE else ref

    return attrs.evolve(
        program,
        providers={
            name: attrs.evolve(
                one,
                keys=tuple(map(home, one.keys)),
                base=home(one.base) if isinstance(one.base, SecretRef) else one.base,
            )
            for name, one in program.providers.items()
        },
        agents={name: attrs.evolve(one, tokens=tuple(map(home, one.tokens))) for name, one in program.agents.items()},
    )


# ---- one call ----


def turns_of(
    programs: tuple[Program, Program], facts: Facts, apis_of: ApisOf | None = None
) -> Iterator[DecisionChange]:
    """Yield the changed decisions of one call."""
    old, new = programs
    before, after = old.decide(request_of(old, facts, apis_of)), new.decide(request_of(new, facts, apis_of))
    were, are = treated(old, before), treated(new, after)
    both_go = "lane" in were and "lane" in are
    for setting in dict.fromkeys([*were, *are]):
        was, now = were.get(setting, NO), are.get(setting, NO)
        # What is refused is in no lane and has no tags, and that it is refused is said already.
        if was != now and (both_go or (setting in were and setting in are)):
            yield DecisionChange(
                setting=setting,
                before=was,
                after=now,
                by_before=before.decided.get(setting),
                by_after=after.decided.get(setting),
            )


@final
@attrs.define(eq=False)
class _Compare:
    """Two programs, asked about the same calls."""

    _programs: tuple[Program, Program]
    _apis_of: ApisOf | None
    _instead: Instead

    def turns(self, facts: Facts) -> tuple[DecisionChange, ...]:
        return tuple(turns_of(self._programs, facts, self._apis_of))

    def keys(self, facts: Facts) -> set[Triple]:
        """Return the same, without who decided."""
        return {(turn.setting, turn.before, turn.after) for turn in self.turns(facts)}

    def shortened(self, facts: Facts, wanted: set[Triple]) -> Facts:
        """Return the call without facts that do not matter for these changes. The time stays: `explain` uses now."""
        kept = dict(facts)
        if "model" in kept:
            known = ({**kept, "model": model} for model in KNOWN_MODELS)
            kept = next((named for named in known if wanted <= self.keys(named)), kept)
        # The time goes last, when nothing else will change any more.
        for field in reversed(list(facts)):
            less = {name: value for name, value in kept.items() if name != field}
            instead = [self.keys({**less, **one}) for one in self._instead.get(field, ({},))]
            # Without its dialect or its time it would be another call, of which other things may be shown.
            whole = field in ("api", "path", *self._instead)
            if instead and all(keys == self.keys(kept) if whole else wanted <= keys for keys in instead):
                kept = less
        return kept
