"""What can be asked of all calls at once, held against calls one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from operator import eq
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind_trio.model import Api, Request
from hivemind_trio.model.dates import days, weekday_of
from hivemind_trio.policy import CallSpace, Checked, GaveUp, MemoryFiles, Nothing, Of, Space, Witness, check
from hivemind_trio.policy.compile.codegen import Router
from hivemind_trio.policy.language.clock_edges import in_minutes
from hivemind_trio.policy.language.condition_eval import field_values, holds
from hivemind_trio.policy.language.condition_typing import Like, Member, Relation
from hivemind_trio.policy.program.call_facts import words
from hivemind_trio.policy.solver.boundary_calls import candidates
from hivemind_trio.policy.solver.box_cover import Cover, Covered, Open, bits
from hivemind_trio.policy.solver.call_space import amounts
from hivemind_trio.policy.solver.partition import Days
from hivemind_trio.policy.solver.text_classes import text_classes
from tests.policy.drawn import Drawn, policies
from tests.policy.strategies import AGENTS, DATE_GLOBS, DATES, FLAGS, NUMBERS, TEXTS, fits


@st.composite
def a_test_of(draw: st.DrawFn, field: str) -> Relation | Member | Like:
    """A test of the hour, the weekday or the date."""
    if field == "date":
        values: Any = draw(st.lists(st.sampled_from(DATES), min_size=1, max_size=3))
        globs = tuple(draw(st.lists(st.sampled_from(DATE_GLOBS), max_size=2)))
        equal = Relation("date", draw(st.sampled_from(["==", "!="])), values[0])
        options: list[Relation | Member | Like] = [Like("date", globs), Member("date", tuple(values), ()), equal]
        return draw(st.sampled_from(options))
    least, most = (0, 23) if field == "hour" else (1, 7)
    values = draw(st.lists(st.integers(least, most), min_size=2, max_size=4))
    low, high = sorted(values[:2])
    if draw(st.booleans()):
        return Relation(field, draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="])), low)
    return Member(field, tuple(values[2:]), ((low, high),))


def policy(text: str) -> Checked:
    checked = check("team.hmp", MemoryFiles({"team.hmp": text}))
    assert checked.program is not None, checked.diagnostics
    return checked


def world(checked: Checked) -> CallSpace:
    assert checked.program is not None
    return CallSpace.of(checked.program, checked.conditions)


def values_of(checked: Checked, request: Request) -> dict[str, Any]:
    assert checked.program is not None
    treatment = checked.program.decide(request)
    routed = Router.of(checked.program.providers).route(request.apis, request.model)
    return field_values(request, agent=treatment.agent, team=treatment.team, provider=routed)


# ---- covers ----

SIZES = (2, 3, 4, 2)


def cubes(sizes: tuple[int, ...] = SIZES) -> st.SearchStrategy[dict[int, int]]:
    return st.fixed_dictionaries(
        {}, optional={variable: st.integers(1, (1 << size) - 1) for variable, size in enumerate(sizes)}
    )


def is_in(cells: tuple[int, ...], cube: dict[int, int]) -> bool:
    return all(mask >> cells[variable] & 1 for variable, mask in cube.items())


@given(start=cubes(), covering=st.lists(cubes(), max_size=14), among=st.integers(0, (1 << 14) - 1))
@settings(max_examples=200)
def test_a_box_is_covered_exactly_if_each_of_its_combinations_is(
    start: dict[int, int], covering: list[dict[int, int]], among: int
) -> None:
    among &= (1 << len(covering)) - 1
    held = [covering[number] for number in bits(among)]
    cover = Cover(SIZES, covering)

    found = cover.search(start, among)

    inside = [cells for cells in product(*map(range, SIZES)) if is_in(cells, start)]
    outside = [cells for cells in inside if not any(is_in(cells, cube) for cube in held)]
    match found:
        case Open(cells=chosen):
            lowest = {variable: bits(mask)[0] for variable, mask in start.items()}
            assert tuple({**dict.fromkeys(range(4), 0), **lowest, **chosen}.values()) in outside
        case Covered(by=by):
            assert not outside
            assert by & ~among == 0
            assert all(any(is_in(cells, covering[number]) for number in bits(by)) for cells in inside)
            kept = cover.fewest([start], by, [1 << number for number in range(len(covering))])
            for left in [None, *kept]:
                rest = [covering[number] for number in kept if number != left]
                assert all(any(is_in(cells, cube) for cube in rest) for cells in inside) is (left is None)


def pieces(random: Random, cube: dict[int, int], depth: int) -> list[dict[int, int]]:
    """A box cut into boxes, which overlap here and there."""
    sides = [number for number, mask in cube.items() if mask & (mask - 1)]
    if not depth or not sides:
        return [cube]
    side = random.choice(sides)
    cells = bits(cube[side])
    random.shuffle(cells)
    cut = random.randint(1, len(cells) - 1)
    ends = sum(1 << cell for cell in cells[:cut]), sum(1 << cell for cell in cells[cut - (random.random() < 0.2) :])
    return [piece for mask in ends for piece in pieces(random, {**cube, side: mask}, depth - 1)]


@pytest.mark.parametrize("seed", range(4))
def test_a_box_of_many_pieces_is_covered_until_one_is_missing(seed: int) -> None:
    random = Random(seed)
    whole = {number: (1 << size) - 1 for number, size in enumerate(SIZES)}
    everything = list(product(*map(range, SIZES)))
    for _ in range(100):
        covering = pieces(random, whole, random.randint(2, 5))
        random.shuffle(covering)
        missing = covering.pop() if random.random() < 0.5 else None
        held = {cells for cells in everything if any(is_in(cells, cube) for cube in covering)}
        cover = Cover(SIZES, covering)

        found = cover.search({}, (1 << len(covering)) - 1)

        match found:
            case Open(cells=chosen):
                assert missing is not None
                assert tuple({**dict.fromkeys(range(4), 0), **chosen}.values()) not in held
            case Covered(by=by):
                assert len(held) == len(everything)
                used = [covering[number] for number in bits(by)]
                assert all(any(is_in(cells, cube) for cube in used) for cells in everything)
                kept = cover.fewest([{}], by, [1 << number for number in range(len(covering))])
                for left in [None, *kept]:
                    rest = [covering[number] for number in kept if number != left]
                    assert all(any(is_in(cells, cube) for cube in rest) for cells in everything) is (left is None)


# ---- texts ----


@pytest.mark.slow
@given(
    words=st.lists(st.text("ab*", max_size=3), max_size=3, unique=True),
    globs=st.lists(st.text("ab*?", max_size=4), max_size=4, unique=True),
)
def test_classes_of_texts_are_those_that_some_text_has(words: list[str], globs: list[str]) -> None:
    found = text_classes(words, globs)

    assert found is not None
    texts = ["".join(letters) for size in range(6) for letters in product("abz*", repeat=size)]
    patterns: list[Callable[[str], bool]] = [partial(eq, word) for word in words]
    patterns += [partial(fits, glob) for glob in globs]
    existing = {sum(1 << n for n, matches in enumerate(patterns) if matches(text)) for text in texts}
    assert existing <= {one.fits for one in found}
    for one in found:
        assert one.fits == sum(1 << n for n, matches in enumerate(patterns) if matches(one.example))
    assert len({one.fits for one in found}) == len(found)


def test_more_classes_of_texts_than_can_be_walked_are_none() -> None:
    assert text_classes([], [f"*{letter}{letter}{letter}*" for letter in "abcdefghijkl"]) is None


# ---- amounts ----

SPANS = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda ends: (min(ends), max(ends)))
LINES = st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 60), st.integers(0, 9)).map(
    lambda one: (one[0], one[1], one[2], one[2] + one[3])
)


@given(first=SPANS, second=SPANS, lines=st.lists(LINES, max_size=3))
@settings(max_examples=200)
def test_two_amounts_are_found_exactly_if_there_are_some(
    first: tuple[int, int], second: tuple[int, int], lines: list[tuple[int, int, int, int]]
) -> None:
    found = amounts(first, second, lines)

    possible = [
        (x, y)
        for x in range(first[0], first[1] + 1)
        for y in range(second[0], second[1] + 1)
        if all(low <= a * x + b * y <= high for a, b, low, high in lines)
    ]
    assert found in possible if found else found is None and not possible


# ---- calls ----


def some_calls(checked: Checked, random: Random, number: int) -> list[Request]:
    """Calls as the door makes them: the cost is what the tokens cost."""
    assert checked.program is not None
    made = []
    for _ in range(number):
        sent = {name: random.choice(values) for name, values in TEXTS.items()}
        counts = {
            name: max(
                1 if name == "attempt" else 0,
                random.choice(sorted(NUMBERS[name].values())) + random.choice([0, 0, 1, -1]),
            )
            for name in ("tokens.in", "tokens.max-out", "attempt")
        }
        date = random.choice(DATES)
        flags: dict[str, Any] = {flag: random.random() < 0.5 for flag in FLAGS}
        request = Request(
            apis=tuple(random.sample([Api.ANTHROPIC, Api.OPENAI, Api.GEMINI], random.randint(0, 2))),
            token_agent=random.choice([None, *(name for name, one in checked.program.agents.items() if one.tokens)]),
            claimed=random.choice([None, "nobody", *AGENTS]),
            model=sent["model"],
            path=sent["path"],
            method=sent["method"],
            **flags,
            tokens_in=counts["tokens.in"],
            tokens_max_out=counts["tokens.max-out"],
            attempt=counts["attempt"],
            hour=random.randrange(24),
            minute=random.choice((0, 5, 30, 59)),
            weekday=weekday_of(date),
            date=date,
            headers={"x-job": sent["header.x-job"], "x-kind": sent["header.X-Kind"]},
            meta={name[5:]: text for name, text in sent.items() if name.startswith("meta.")},
        )
        cost = checked.program.estimated_cost(request.apis, request.model, request.tokens_in, request.tokens_max_out)
        made.append(attrs.evolve(request, cost_microusd=cost))
    return made


@pytest.mark.slow
@given(drawn=policies(), seed=st.integers(0, 99))
@settings(max_examples=80)
def test_no_call_is_like_what_is_said_to_be_nothing_and_what_is_found_is_as_was_asked(drawn: Drawn, seed: int) -> None:
    checked = policy(drawn.text)
    rules = [one for one in checked.conditions["rule"].values() if one is not None]
    space = Space.of([world(checked)], rules)
    random = Random(seed)
    calls = [values_of(checked, request) for request in some_calls(checked, random, 60)]
    for _ in range(8):
        wanted = random.sample(rules, random.randint(0, min(2, len(rules))))
        unwanted = [one for one in rules if one not in wanted and random.random() < 0.6]

        found = space.find(wanted, unwanted)

        match found:
            case Witness():
                values = values_of(checked, found.request())
                assert all(holds(one, values) for one in wanted)
                assert not any(holds(one, values) for one in unwanted)
            case Nothing():
                for values in calls:
                    assert not all(holds(one, values) for one in wanted) or any(holds(one, values) for one in unwanted)
            case GaveUp():
                # Prices of whole micro-dollars leave no gaps between the amounts that are drawn.
                raise AssertionError("nothing here is hard")


HEAD = """
provider anthropic { }
provider openai { serves ["gpt-*"] }
team people { }
agent x { team people }
agent y { token env(Y) }
agent z when header.x-job != "" { team people }
team first when header.x-team ~ "a*" { }
team second when header.x-team ~ "ab*" or agent == y { }
"""

NOTHING = {
    "a contradiction": 'model == "a" and model == "b"',
    "globs that exclude each other": 'model ~ "claude-*" and model ~ "gpt-*"',
    "a glob within another": 'model ~ "claude-opus-*" and not model ~ "claude-*"',
    "letters that cannot overlap": 'model ~ "a*b" and model ~ "*c?" and not model ~ "*cb*"',
    "numbers": "tokens.in > 5 and tokens.in < 6",
    "input above the total": "tokens.in > 100k and tokens.total < 50k",
    "a total without its parts": "tokens.in == 2 and tokens.max-out == 3 and tokens.total != 5",
    "an unknown caller with an agent's header": 'agent == unknown and header.X-Job == "7"',
    "another's team": "team == people and agent == y",
    "a team that is matched later": 'team == second and header.X-Team == "abc"',
    "no team with what makes one": 'team == none and agent == unknown and header.x-team == "a"',
    "a team by a condition of an agent that has one": "team == first and agent == x",
    "a provider of other models": 'provider == openai and model ~ "claude-*"',
    "more than these tokens can cost": 'model ~ "gpt-*" and cost > $4 and tokens.total < 100k',
    "a model without a price": 'cost > $1 and model == "mine"',
    "beyond the hours": "not (hour in 0..11 or hour in 12..23)",
    "beyond the week": "weekday < 1 or weekday > 7",
    "no member": "hour in []",
}  # fmt: skip

PRICES = """
model "*" on anthropic { price input $1/Mtok output $1/Mtok }
model "gpt-*" on openai { price input $100/Mtok output $100/Mtok }
"""

AT_PRICES = {
    # condition -> whether some call meets it
    "provider == anthropic and cost > $1 and tokens.total <= 1M": False,
    "provider == anthropic and cost > $1 and tokens.total <= 2M": True,
    'provider == openai and model != "" and cost < $1 and tokens.total >= 10k': False,
    "provider == openai and cost == $1 and tokens.total == 10k": True,
    "cost > $1 and tokens.total <= 10k": False,
    "cost == $1 and tokens.total == 10k": True,
}


@pytest.mark.parametrize(("condition", "is_met"), AT_PRICES.items())
def test_a_cost_is_at_the_price_of_the_provider_before_any_rule(condition: str, is_met: bool) -> None:
    checked = policy(f"{HEAD}{PRICES}rule r when {condition} {{ priority 1 }}\n")
    asked = checked.conditions["rule"]["r"]
    assert asked is not None

    found = Space.of([world(checked)], [asked]).find([asked])

    assert isinstance(found, Witness if is_met else Nothing)


SOMETHING = {
    "nothing asked": "tokens.in >= 0",
    "globs that overlap": 'model ~ "claude-*" and model ~ "*-mini"',
    "an agent by its claim alone": 'agent == z and header.x-job == ""',
    "an agent by its token": "agent == y",
    "a team by a condition": 'team == first and agent == unknown and header.x-team == "abc"',
    "a team by the agent in its condition": "team == second and agent == y",
    "an unknown caller": 'agent == unknown and header.x-job == "" and team == none',
    "a provider": 'provider == openai and model != ""',
    "no provider that is told": "not provider in [anthropic, openai]",
    "an expensive call": "cost > $4 and tokens.total < 100k",
    "an exact cost": "cost == $0.10",
    "the sum": "tokens.in > 40k and tokens.max-out > 40k and tokens.total < 90k",
}  # fmt: skip


@pytest.mark.parametrize("condition", NOTHING.values(), ids=NOTHING)
def test_a_condition_that_no_call_meets(condition: str) -> None:
    checked = policy(f"{HEAD}rule r when {condition} {{ priority 1 }}\n")
    asked = checked.conditions["rule"]["r"]
    assert asked is not None

    assert isinstance(Space.of([world(checked)], [asked]).find([asked]), Nothing)


@pytest.mark.parametrize("condition", SOMETHING.values(), ids=SOMETHING)
def test_a_condition_that_a_call_meets(condition: str) -> None:
    checked = policy(f"{HEAD}rule r when {condition} {{ priority 1 }}\n")
    asked = checked.conditions["rule"]["r"]
    assert asked is not None

    found = Space.of([world(checked)], [asked]).find([asked])

    assert isinstance(found, Witness)
    assert holds(asked, values_of(checked, found.request()))


def test_what_cannot_be_divided_has_no_answer() -> None:
    many = " or ".join(f'model ~ "*{letter}{letter}{letter}*"' for letter in "abcdefghijkl")
    checked = policy(f"provider anthropic {{ }}\nrule r when {many} {{ priority 1 }}\n")
    asked = checked.conditions["rule"]["r"]
    assert asked is not None

    assert isinstance(Space.of([world(checked)], [asked]).find([asked]), GaveUp)


# ---- two policies ----


def compared(old: str, new: str, condition: str) -> tuple[list[CallSpace], Any, Any]:
    """Both as worlds, and the condition as each reads it."""
    both = [
        policy(f"provider anthropic {{ }}\n{text}\nrule r when {condition} {{ priority 1 }}\n") for text in (old, new)
    ]
    return [world(one) for one in both], both[0].conditions["rule"]["r"], both[1].conditions["rule"]["r"]


def test_a_call_is_one_and_the_same_for_two_policies() -> None:
    worlds, old, new = compared(
        "agent ci { }", 'agent ci { token env(CI) }\nagent job when header.x-job == "7" { }', "agent == ci"
    )

    space = Space.of(worlds, [Of(old, 0), Of(new, 1)])

    # A claim makes a caller the old `ci`, a token the new one, and no caller has both.
    assert isinstance(space.find([Of(old, 0), Of(new, 1)]), Nothing)
    claimed = space.find([Of(old, 0)], [Of(new, 1)])
    assert isinstance(claimed, Witness)
    assert claimed.values(0)["agent"] == "ci"
    assert claimed.values(1)["agent"] == "job" if "headers" in claimed.facts else "unknown"
    proven = space.find([Of(new, 1)], [Of(old, 0)])
    assert isinstance(proven, Witness)
    assert proven.request(1).token_agent == "ci"
    assert proven.request(0).token_agent is None


def test_a_team_by_a_condition_is_each_policy_s_own() -> None:
    teams = 'team a when header.x-team == "{}" {{ }}\nteam b {{ }}\nagent ci {{ team b }}'
    worlds, old, new = compared(teams.format("1"), teams.format("2"), "team == a")

    space = Space.of(worlds, [Of(old, 0), Of(new, 1)])

    found = space.find([Of(old, 0)], [Of(new, 1)])
    assert isinstance(found, Witness)
    assert found.facts["headers"] == {"x-team": "1"}
    assert isinstance(space.find([Of(old, 0), Of(new, 1)]), Nothing)


def test_a_team_is_each_policy_s_own() -> None:
    teams = "team a { }\nteam b { }\n"
    worlds, old, new = compared(f"{teams}agent ci {{ team a }}", f"{teams}agent ci {{ team b }}", "team == a")

    space = Space.of(worlds, [Of(old, 0), Of(new, 1)])

    assert isinstance(space.find([Of(old, 0)], [Of(new, 1)]), Witness)
    assert isinstance(space.find([Of(old, 0), Of(new, 1)]), Nothing)


@pytest.mark.parametrize("apis", [(Api.ANTHROPIC,), (Api.OPENAI,), ()])
def test_a_provider_that_is_found_is_where_such_a_call_goes(apis: tuple[Api, ...]) -> None:
    checked = policy(f"{HEAD}rule r when provider == openai {{ priority 1 }}\n")
    asked = checked.conditions["rule"]["r"]
    assert asked is not None
    assert checked.program is not None

    found = Space.of([world(checked)], [asked]).find([asked])

    assert isinstance(found, Witness)
    assert checked.program.decide(found.request()).provider == "openai"


@given(test=a_test_of("hour"))
def test_a_test_of_the_hour_is_the_same_one_of_the_time(test: Relation | Member) -> None:
    of_time = in_minutes(test)

    for minute in (0, 1, 59, *range(0, 1_440, 60), *range(59, 1_440, 60)):
        assert holds(of_time, {"time": minute}) == holds(test, {"hour": minute // 60}), minute


@given(tests=st.lists(a_test_of("weekday") | a_test_of("date"), max_size=4), number=st.integers(0, 36_524))
def test_a_day_is_in_the_group_of_days_that_meet_the_same_tests(tests: list[Any], number: int) -> None:
    grouped = Days.of(tests)
    assert grouped is not None
    date = days()[number]
    values: dict[str, str | int | bool] = {"date": date, "weekday": weekday_of(date)}
    met = {test: grouped.mask(test) for test in tests}

    (group,) = [
        group
        for group in range(len(grouped))
        if all(bool(mask >> group & 1) == holds(test, values) for test, mask in met.items())
    ]
    example: dict[str, str | int | bool] = {"date": grouped.groups[group], "weekday": weekday_of(grouped.groups[group])}
    assert all(holds(test, example) == holds(test, values) for test in tests)


@pytest.mark.parametrize("network", ["ff00::/8", "::/0", "::/8"])
def test_likely_calls_have_addresses_that_there_are(network: str) -> None:
    checked = policy(f'{HEAD}rule r when client.address in ["{network}"] {{ priority 1 }}\n')
    asked = checked.conditions["rule"]["r"]
    assert asked is not None
    assert checked.program is not None

    found = list(candidates([asked], (checked.program, checked.program), by_path=False))

    assert all(words(facts) for facts in found)  # an address beyond the last one cannot be written
