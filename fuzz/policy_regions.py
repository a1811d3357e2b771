"""What is said of all calls at once, against z3.

Invariant: where `Space` says that a call meets some conditions and no others, or that none does, z3 says so too. Texts
are z3's own strings, globs its regular expressions, numbers its integers; that `tokens.total` is a sum, which provider
serves a model and who is in a team is told to it as formulas, independently of how `solver/call_space.py` enumerates
it.

z3 is no dependency of this project: `pip install z3-solver` in an environment of your own. Without it there is nothing
to compare with, so `one_input` raises, and as a script this says so and ends with status 2.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

from hivemind_trio.policy import CallSpace, Checked, MemoryFiles, Nothing, Space, Witness, check
from hivemind_trio.policy.language.condition_typing import (
    AllOf,
    Always,
    AnyOf,
    Condition,
    Flag,
    Like,
    Member,
    Negation,
    Relation,
)

try:
    import z3
except ImportError:  # pragma: no cover - said by whoever is asked
    z3 = None

MISSING: Final = "z3 is missing: `pip install z3-solver` in an environment of your own"

HEAD: Final = """provider anthropic { }
provider openai { serves ["gpt-*", "o?"] }
team people { }
agent x { team people }
agent y { token env(Y) }
agent job when header.x-job != "" and not stream { team people }
"""

SEEDS: Final = tuple(bytes([number, 3 * number, 7, number + 100, 1]) for number in range(8))
"""Each is a seed of the generator below: what z3 is asked is drawn, not parsed."""

TESTS: Final = (
    "stream", "tools", "agent == x", "agent == y", "agent == unknown", "agent == job", "team == people",
    'header.x-job == "7"', 'header.x-job ~ "?*"', "hour < 6", "hour in 4..7", "hour != 5", "weekday > 5",
    'model ~ "gpt-*"', 'model ~ "*-mini"', 'model ~ "*o*4-?"', 'model == "gpt-5-mini"',
    'model ~ ["?", "o*"]', 'model != ""', "tokens.max-out in 1..5", "attempt > 1",
    "provider == openai", "provider != anthropic", "provider in [anthropic, openai]",
    "tokens.in > 2k", "tokens.in <= 10", "tokens.total <= 2k", "tokens.total == 2001",
)  # fmt: skip


def one_input(data: bytes) -> str:
    """Draw rules from the bytes, ask both; what they agree on."""
    if z3 is None:
        raise RuntimeError(MISSING)
    random = Random(data)
    rules = [
        f"rule r{number} when {_condition(random, 2)} {{ priority 1 }}\n" for number in range(random.randint(1, 5))
    ]
    checked = check("team.hmp", MemoryFiles({"team.hmp": HEAD + "".join(rules)}))
    assert checked.program is not None, checked.diagnostics
    conditions = [one for one in checked.conditions["rule"].values() if one is not None]
    space = Space.of([CallSpace.of(checked.program, checked.conditions)], conditions)
    wanted = random.sample(conditions, random.randint(1, min(2, len(conditions))))
    unwanted = [one for one in conditions if one not in wanted]

    answer = space.find(wanted, unwanted)

    solver = _solver(checked)
    solver.add(*(_formula(one) for one in wanted), *(z3.Not(_formula(one)) for one in unwanted))
    match answer, solver.check():
        case Witness(), z3.sat:
            return "there is a call"
        case Nothing(), z3.unsat:
            return "there is none"
        case _, z3.unknown:
            return "z3 does not know"
        case _:  # nothing here is so hard that it might be given up
            raise AssertionError(f"{answer}, and z3 says {solver.check()}:\n{''.join(rules)}")


def _condition(random: Random, depth: int) -> str:
    if not depth or random.random() < 0.3:
        return random.choice(TESTS)
    parts = [_condition(random, depth - 1) for _ in range(random.randint(1, 3))]
    return ("not " if random.random() < 0.3 else "") + f"({random.choice((' and ', ' or ')).join(parts)})"


def _solver(checked: Checked) -> Any:
    """What is so of every call."""
    solver = z3.Solver()
    solver.set("timeout", 2_000)
    number = {
        name: z3.Int(name) for name in ("tokens.in", "tokens.max-out", "tokens.total", "hour", "weekday", "attempt")
    }
    solver.add(number["tokens.in"] >= 0, number["tokens.max-out"] >= 0)
    solver.add(number["tokens.total"] == number["tokens.in"] + number["tokens.max-out"])
    solver.add(number["hour"] >= 0, number["hour"] <= 23, number["weekday"] >= 1, number["weekday"] <= 7)
    solver.add(number["attempt"] >= 1)
    agent, team, provider = z3.String("agent"), z3.String("team"), z3.String("provider")
    job = checked.conditions["agent"]["job"]
    assert job is not None
    solver.add(z3.Or(*(agent == name for name in ("x", "y", "job", "unknown"))))
    solver.add(z3.Implies(agent == "unknown", z3.Not(_formula(job))))
    solver.add(team == z3.If(z3.Or(agent == "x", agent == "job"), z3.StringVal("people"), z3.StringVal("none")))
    # A call goes to a provider of one of its dialects that serves the model; of no dialect, nowhere.
    model = z3.String("model")
    served = z3.Or(model == "", z3.InRe(model, _regex("gpt-*")), z3.InRe(model, _regex("o?")))
    solver.add(z3.Or(provider == "", provider == "anthropic", z3.And(provider == "openai", served)))
    return solver


def _formula(condition: Condition) -> Any:
    match condition:
        case Always():
            return z3.BoolVal(True)
        case AllOf(items=items):
            return z3.And(*map(_formula, items))
        case AnyOf(items=items):
            return z3.Or(*map(_formula, items))
        case Negation(item=item):
            return z3.Not(_formula(item))
        case Flag(field=field):
            return z3.Bool(field)
        case Like(field=field, globs=globs):
            return z3.Or(*(z3.InRe(z3.String(field), _regex(glob)) for glob in globs))
        case Member(field=field, values=values, ranges=ranges):
            equal = [_of(field, value) == value for value in values]
            return z3.Or(*equal, *(z3.And(low <= z3.Int(field), z3.Int(field) <= high) for low, high in ranges))
        case Relation(field=field, op=op, value=value):
            left = _of(field, value)
            return {
                "==": lambda: left == value, "!=": lambda: left != value, "<": lambda: left < value,
                "<=": lambda: left <= value, ">": lambda: left > value, ">=": lambda: left >= value,
            }[op]()  # fmt: skip


def _of(field: str, value: object) -> Any:
    return z3.String(field) if isinstance(value, str) else z3.Int(field)


def _regex(glob: str) -> Any:
    any_letter = z3.AllChar(z3.ReSort(z3.StringSort()))
    parts = [
        z3.Star(any_letter) if letter == "*" else any_letter if letter == "?" else z3.Re(letter) for letter in glob
    ]
    return z3.Concat(*parts) if len(parts) > 1 else parts[0]


def main() -> int:
    """Run files, or the seeds and some hundred more."""
    if z3 is None:
        print(MISSING, file=sys.stderr)
        return 2
    inputs = [Path(path).read_bytes() for path in sys.argv[1:]] or [*SEEDS, *(str(n).encode() for n in range(300))]
    said = Counter(one_input(data) for data in inputs)
    print("; ".join(f"{number} times {answer}" for answer, number in said.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
