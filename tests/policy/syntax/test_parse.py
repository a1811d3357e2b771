"""The tree of a text, and every syntax error of it in one run."""

from __future__ import annotations

import logging
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind_trio.policy import Diagnostic, MemoryFiles, applied, check
from hivemind_trio.policy.source.string_literals import quote
from hivemind_trio.policy.syntax.ast import (
    And,
    Compare,
    Contains,
    Expr,
    Item,
    Let,
    Name,
    Not,
    Or,
    Quantity,
    Statement,
    String,
)
from hivemind_trio.policy.syntax.grammar import ERROR_TERMINALS, grammar
from hivemind_trio.policy.syntax.grammar_text import GRAMMAR
from hivemind_trio.policy.syntax.parser import parse
from tests.policy.layouts import bare, policies

NESTING_MAX = 64


def codes(text: str) -> list[str]:
    return [found.code for found in parse(text, 0)[1]]


def outline(statements: tuple[Statement, ...]) -> str:
    """The heads, those of a block in braces behind their own."""
    words = []
    for one in statements:
        match one:
            case Item(head=head, block=block):
                words.append(head.text + (f"{{{outline(block.statements)}}}" if block is not None else ""))
            case Let(name=name):
                words.append(f"let:{name.text}")
            case _:
                words.append("expect")
    return " ".join(words)


def survived(text: str) -> str:
    return outline(parse(text, 0)[0].statements)


def heads(text: str) -> list[str]:
    """Those that survived, however deep."""
    return survived(text).replace("{", " ").replace("}", " ").split()


def told(expr: Expr) -> str:
    """A condition with all its brackets."""
    match expr:
        case Or(items=items):
            return f"({' or '.join(map(told, items))})"
        case And(items=items):
            return f"({' and '.join(map(told, items))})"
        case Not(item=item):
            return f"(not {told(item)})"
        case Compare(op=op, left=left, right=right):
            return f"({told(left)} {op} {told(right)})"
        case Contains(left=left, right=right, negated=negated):
            return f"({told(left)} {'not in' if negated else 'in'} {told(right)})"
        case Name(text=text) | Quantity(text=text) | String(value=text):
            return text
        case _:
            return "..."


def condition(text: str) -> Expr:
    file, problems = parse(f"rule r when {text} {{ }}", 0)
    assert not problems
    (item,) = file.statements
    assert isinstance(item, Item)
    assert item.when is not None
    return item.when


# ---- the grammar ----


def test_the_grammar_has_no_conflict(caplog: pytest.LogCaptureFixture) -> None:
    from lark import Lark
    from lark.utils import logger

    before = logger.level
    logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.DEBUG, logger.name):
            Lark(GRAMMAR, parser="lalr", lexer="basic", debug=True)
            assert not [record for record in caplog.messages if "conflict" in record.lower()]
            Lark("start: start start | A\nA: /a/\n", parser="lalr", lexer="basic", debug=True)
            assert [record for record in caplog.messages if "conflict" in record.lower()]  # it would have been told
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(before)


def test_the_grammar_is_accepted_by_a_strict_lark() -> None:
    pytest.importorskip("interegular", reason="Lark looks for terminals that collide with it")

    assert grammar(strict=True).rules


def test_a_start_does_not_pay_for_the_search_for_collisions(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("interegular", reason="Lark looks for terminals that collide with it")
    searches: list[object] = []
    monkeypatch.setattr("lark.lexer._check_regex_collisions", lambda *given: searches.append(given))

    assert grammar.__wrapped__().rules
    assert not searches
    assert grammar.__wrapped__(strict=True).rules
    assert searches


def test_the_reserved_words_are_these() -> None:
    terminals = grammar().terminals
    words = {term.pattern.value for term in terminals if str(term.pattern.value).isalpha()}

    assert words == {"let", "expect", "when", "or", "and", "not", "in"}
    for word in words:
        assert codes(f"{word} {{ }}")
        assert not codes(f"{word}-x 1\nx-{word} 1\n{word.upper()} 1\nx.{word} 1\n")


def test_no_rule_mentions_what_only_errors_are_made_of() -> None:
    used = {symbol.name for rule in grammar().rules for symbol in rule.expansion}

    assert not used & set(ERROR_TERMINALS)
    assert set(ERROR_TERMINALS) <= {term.name for term in grammar().terminals}


# ---- precedence ----

PRECEDENCE = {
    "a": "a",
    "a or b or c": "(a or b or c)",
    "a and b and c": "(a and b and c)",
    "a and b or c": "((a and b) or c)",
    "a or b and c": "(a or (b and c))",
    "a and b or c and d": "((a and b) or (c and d))",
    "a or b and c or d": "(a or (b and c) or d)",
    "(a or b) and c": "((a or b) and c)",
    "a and (b or c)": "(a and (b or c))",
    "(a or b) or c": "((a or b) or c)",
    "not a and b": "((not a) and b)",
    "not a or b": "((not a) or b)",
    "a and not b or c": "((a and (not b)) or c)",
    "not (a and b)": "(not (a and b))",
    "not not a": "(not (not a))",
    "not a == b": "(not (a == b))",
    "not a in [b]": "(not (a in ...))",
    "a not in [b]": "(a not in ...)",
    "not a not in [b]": "(not (a not in ...))",
    "a == b and c != d": "((a == b) and (c != d))",
    "a == b or c < 1 and d >= 2": "((a == b) or ((c < 1) and (d >= 2)))",
    'a ~ "x*" and b in 1..2': "((a ~ x*) and (b in ...))",
    "not a and not b or not c": "(((not a) and (not b)) or (not c))",
    "(a)": "a",
    "((a == b))": "(a == b)",
}


@pytest.mark.parametrize(("text", "expected"), PRECEDENCE.items(), ids=PRECEDENCE)
def test_not_binds_closer_than_and_and_and_closer_than_or(text: str, expected: str) -> None:
    assert told(condition(text)) == expected


def truth(expr: Expr, facts: dict[str, bool]) -> bool:
    match expr:
        case Or(items=items):
            return any(truth(item, facts) for item in items)
        case And(items=items):
            return all(truth(item, facts) for item in items)
        case Not(item=item):
            return not truth(item, facts)
        case Name(text=text):
            return facts[text]
        case _:
            raise AssertionError(expr)


LOGIC = st.recursive(
    st.sampled_from("abc"),
    lambda inner: st.one_of(
        st.builds("not {}".format, inner),
        st.builds("({})".format, inner),
        st.builds("{} and {}".format, inner, inner),
        st.builds("{} or {}".format, inner, inner),
    ),
    max_leaves=8,
)


@given(LOGIC)
def test_a_condition_means_what_it_means_in_python(text: str) -> None:
    tree = condition(text)

    for values in product((False, True), repeat=3):
        facts = dict(zip("abc", values, strict=True))
        assert truth(tree, facts) is eval(text, {"__builtins__": {}}, facts)


# ---- shapes ----

SHAPES = {
    "nothing": ("", ""),
    "a word": ("a", "a"),
    "values": ('a b 4 "x" 1..2 [1, 2] env(K) 22:00 5/min', "a"),
    "a block": ("a { b { c 1 } }\nd", "a{b{c}} d"),
    "an empty block": ("a { }", "a{}"),
    "a condition and a block": ("a b when c { d }", "a{d}"),
    "on one line": ("a { b 1; c 2 }; d 3", "a{b c} d"),
    "a semicolon at the end": ("a 1;", "a"),
    "let and expect": ('let a = 1\ntest "t" { expect a }', "let:a test{expect}"),
    "a list that ends with a comma": ("a [1, 2,]", "a"),
    "an empty list, and a call of nothing": ("a [] f()", "a"),
    "a list in a list": ("a [f([b])]", None),
}


@pytest.mark.parametrize(("text", "expected"), SHAPES.values(), ids=SHAPES)
def test_a_text_has_this_shape_or_none(text: str, expected: str | None) -> None:
    if expected is None:
        assert codes(text) == ["HM003"]
    else:
        assert codes(text) == []
        assert survived(text) == expected


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=50)
@given(policies())
def test_every_node_stands_where_its_span_says(text: str) -> None:
    file, problems = parse(text, 5)
    assert not problems

    def walk(statements: tuple[Statement, ...], begin: int, end: int) -> None:
        for one in statements:
            assert one.span.source == 5
            assert begin <= one.span.start < one.span.end <= end
            begin = one.span.end
            if isinstance(one, Item):
                assert text[one.head.span.start : one.head.span.end] == one.head.text
                assert one.head.span.start == one.span.start
                for arg in one.args:
                    assert one.head.span.end <= arg.span.start < arg.span.end <= one.span.end
                if one.block is not None:
                    place = one.block.span
                    assert text[place.start] + text[place.end - 1] == "{}"
                    walk(one.block.statements, place.start + 1, place.end - 1)

    walk(file.statements, 0, len(text))


# ---- recovery ----

BROKEN = {
    "`=` in a setting": ("x = 4", "HM003"),
    "`==` in a setting": ("x == 4", "HM003"),
    "a colon": ("x: 4", "HM001"),
    "a sign of another language": ("x when a && b", "HM001"),
    "other quotes": ("x 'a'", "HM001"),
    "a bare glob": ("x gpt-*", "HM001"),
    "a control letter": ("x \0 1", "HM001"),
    "a text that never ends": ('x "abc', "HM002"),
    "a text that never ends, behind a word": ('x a"b', "HM002"),
    "a backslash at the end of the line": ('x "a\\', "HM002"),
    "a chained comparison": ("x when a < b < c", "HM003"),
    "`=` in a condition": ("x when a = b", "HM003"),
    "a condition with a word too many": ("x when a b", "HM003"),
    "`not` for `not in`": ("x when a not b", "HM003"),
    "a number at the beginning": ("4 x", "HM003"),
    "a text at the beginning": ('"x" 4', "HM003"),
    "a sign at the beginning": ("= 3", "HM003"),
    "`let` without a name": ("let = 3", "HM003"),
    "`let` without a value": ("let x", "HM003"),
    "`let` without its sign": ("let x 3", "HM003"),
    "`expect` of nothing": ("expect", "HM003"),
    "a list without a comma": ("x [1 2]", "HM003"),
    "a list with two": ("x [1,,2]", "HM003"),
    "a range of words": ("x a..b", "HM003"),
    "a bracket that was never opened": ("x ]", "HM005"),
    "a parenthesis that was never opened": ("x when a)", "HM005"),
    "a bracket closed by another": ("x [1)", "HM004"),
    "a list that a brace ends": ("x { y [1, 2 }", "HM004"),
    "a parenthesis that a brace ends": ("x when (a { y 1 }", "HM004"),
    "a call that a brace ends": ("x env( { y 1 }", "HM004"),
    "a value behind a block": ("x { y 1 } z", "HM003"),
    "a head that is wrong": ("x = { y 1 }", "HM003"),
    "a sign for a head": ("& { y 1 }", "HM001"),
    "a wrong setting in a block": ("x { y = 1 }", "HM003"),
    "a block on several lines": ("x {\n  y = 1\n}", "HM003"),
    "a bad escape": ('x "\\q"', "HM010"),
}
"""A statement with one mistake, and nothing around it to blame."""


@pytest.mark.parametrize(("broken", "code"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("end", ["\n", "\r\n", "; ", "\n\n# why\n"], ids=["newline", "windows", "semicolon", "comment"])
def test_a_broken_statement_is_one_error_and_its_neighbours_are_read(broken: str, code: str, end: str) -> None:
    if end == "; " and code == "HM002":
        return  # a text that never ends takes the line with it
    text = f"before 1{end}{broken}{end}after {{ q 1 }}\n"

    assert codes(text) == [code]
    assert [head for head in heads(text) if head in ("before", "after", "q")] == ["before", "after", "q"]


@pytest.mark.parametrize(("broken", "code"), BROKEN.values(), ids=BROKEN)
def test_so_it_is_in_a_block_and_the_block_is_read_to_its_end(broken: str, code: str) -> None:
    text = f"p {{\n before 1\n {broken}\n after 2\n}}\nlast\n"

    assert codes(text) == [code]
    wanted = ["p", "before", "after", "last"]
    assert [head for head in heads(text) if head in wanted] == wanted
    assert survived(text).endswith("after} last")
    assert "?" not in survived(text)  # what stands in for a head that could not be read


@pytest.mark.parametrize(("broken", "code"), BROKEN.values(), ids=BROKEN)
def test_so_it_is_at_the_end_of_the_file_with_and_without_a_newline(broken: str, code: str) -> None:
    for end in ("", "\n", "  # why"):
        assert codes(f"before 1\n{broken}{end}") == [code]


@pytest.mark.parametrize("before", ["`=` in a condition", "a chained comparison", "`expect` of nothing"])
def test_a_sign_that_no_operand_follows_joins_no_lines(before: str) -> None:
    broken, code = BROKEN[before]

    assert codes(f"{broken}\n& {{ y 1 }}\n") == [code, "HM001"]


GOOD = [
    "g{} 1",
    "g{} {{ q 1 }}",
    'g{} "a" when b == 1 {{ q 1; r 2 }}',
    "g{} [1,\n  2]",
    "g{} {{\n  q 1\n}}",
    "g{} # why",
]


@pytest.mark.slow
@given(st.lists(st.one_of(st.sampled_from(GOOD), st.sampled_from(sorted(BROKEN))), max_size=12), st.booleans())
def test_n_broken_statements_are_n_errors_in_order_and_the_good_ones_survive(parts: list[str], in_block: bool) -> None:
    lines = [BROKEN[part][0] if part in BROKEN else part.format(number) for number, part in enumerate(parts)]
    text = "\n".join(lines) + "\n"
    if in_block:
        text = f"p {{\n{text}}}\nlast\n"

    found = parse(text, 0)[1]

    assert [one.code for one in found] == [BROKEN[part][1] for part in parts if part in BROKEN]
    assert [one.span.start for one in found] == sorted(one.span.start for one in found)
    good = [head for head in heads(text) if head[0] == "g"]
    assert good == [f"g{number}" for number, part in enumerate(parts) if part in GOOD]
    assert survived(text).endswith(" last") is in_block


def test_a_hundred_broken_statements_are_a_hundred_errors() -> None:
    text = "".join(f"x{number} = 1\ng{number} 1\n" for number in range(100))

    assert codes(text) == ["HM003"] * 100
    assert survived(text) == " ".join(f"x{number} g{number}" for number in range(100))


def test_a_hundred_lists_that_are_not_closed_are_a_hundred_errors_and_not_too_deep() -> None:
    text = "".join(f'p{number} {{ x ["a" }}\n' for number in range(100))

    assert codes(text) == ["HM004"] * 100
    assert survived(text).split() == [f"p{number}{{}}" for number in range(100)]


UNCLOSED = [
    "x [1, 2",
    "x [\n  1,\n  2",
    'x ["a"  # why',
    "x env(K",
    "x when (a",
    "x when a in [1, b",
    "x 4 [f(1, 2)",
]
AROUND = ["g{} 1", "g{} [1,\n  h]", "g{} {{ q [1] }}", "g{} when (a\n  and b) {{ q 1 }}", "# why\ng{} f(a)"]


@pytest.mark.parametrize("unclosed", UNCLOSED)
@pytest.mark.parametrize("around", AROUND)
def test_a_bracket_that_is_never_closed_takes_no_statement_with_it(unclosed: str, around: str) -> None:
    one, two, three, four = (around.format(number) for number in range(1, 5))
    text = f"{one}\n{unclosed}\n{two}\np {{\n{three}\n{unclosed}\n{four}\n}}\n"

    found = parse(text, 0)[1]

    assert [it.code for it in found] == ["HM004"] * 2
    assert [text[it.span.start : it.span.end] for it in found] == ["g2", "g4"]
    assert [head for head in heads(text) if head[0] in "gp"] == ["g1", "g2", "p", "g3", "g4"]


def test_of_several_in_a_row_each_is_an_error() -> None:
    text = "".join(f"x{number} [1, 2\n" for number in range(20)) + "last\n"

    assert codes(text) == ["HM004"] * 20
    assert survived(text) == "last"


BRACES = {
    "one too many": ("a { b 1 } }\nc 2", ["HM005"], "a{b} c"),
    "two too many": ("a 1\n} }\nc 2", ["HM005", "HM005"], "a c"),
    "one is missing at the end": ("a { b 1\nc 2\n", ["HM004"], "a{b c}"),
    "two are missing at the end": ("a { b {\nc 2\n", ["HM004", "HM004"], "a{b{c}}"),
    "one is missing, and a list's": ("a { b [1\n", ["HM004", "HM004"], "a{}"),
    "only one": ("}", ["HM005"], ""),
    "only an opening one": ("{", ["HM003", "HM004"], ""),
    "what is in a block without a head is read": ("{ b = 1\nc = 2 }\nd", ["HM003", "HM003", "HM003"], "d"),
    "a text takes the brace with it": ('a { b "x }\nc 2\n', ["HM002"], "a{b} c"),
    "a text takes a block's beginning with it": ('a "x {\n b = 1\n}\nc', ["HM002", "HM003"], "a{b} c"),
}


@pytest.mark.parametrize(("text", "expected", "left"), BRACES.values(), ids=BRACES)
def test_a_brace_that_is_missing_or_too_many_is_found(text: str, expected: list[str], left: str) -> None:
    assert sorted(codes(text)) == expected
    assert survived(text) == left


def test_no_follow_up_is_reported_of_what_could_not_be_read() -> None:
    text = "lane a = { }\nrule r { lane a }\nprovider anthropic { }\n"

    assert [one.code for one in check("team.hmp", MemoryFiles({"team.hmp": text})).diagnostics] == ["HM003"]


# ---- what is said ----


def only(text: str) -> Diagnostic:
    (found,) = parse(text, 0)[1]
    return found


@pytest.mark.parametrize(
    ("text", "marked", "help_"),
    [
        ("x = 4", "=", "write `x 4`"),
        ("x when a = b", "=", "write `a == b`"),
        ("x when a && b", "&&", "write `and`"),
        ("x when a || b", "||", "write `or`"),
        ("x when a => 4", "=>", "write `>=`"),
        ("x: 4", ":", "write `x 4`"),
        ("x gpt-*", "gpt-*", 'write `"gpt-*"`: a glob is a quoted text'),
        ("x when a < b < c", "a < b < c", "write `a < b and b < c`"),
        ('x "abc', '"abc', 'write `"abc"`'),
        ('x "a\\qb"', "\\q", "for a backslash write `\\\\q`"),
        ("x }", "}", "delete it"),
        ("x ]", "]", "delete it"),
    ],
)
def test_the_smallest_piece_is_marked_and_the_help_says_what_to_write(text: str, marked: str, help_: str) -> None:
    found = only(text)

    assert text[found.span.start : found.span.end] == marked
    assert found.help == help_


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("x = 4", "x 4"),
        ("x=4", "x 4"),
        ("x when a = b", "x when a == b"),
        ("x when a && b", "x when a and b"),
        ("x: 4", "x 4"),
        ("x : 4", "x 4"),
        ("x ]", "x "),
        ("x }", "x "),
        ("x when a => 4", "x when a >= 4"),
        ("x when !a", "x when not a"),
    ],
)
def test_an_edit_that_is_offered_mends_the_text(text: str, after: str) -> None:
    found = only(text)

    assert found.fix is not None
    assert applied(text, found.fix.edits) == after
    assert codes(after) == []


def test_an_open_bracket_is_pointed_at() -> None:
    text = 'p {\n  serves ["a", "b"\n  retry x\n}\n'
    found = only(text)

    assert found.code == "HM004"
    assert text[found.span.start : found.span.end] == "retry"
    assert [text[label.span.start : label.span.end] for label in found.labels] == ["["]


# ---- nesting ----

NESTINGS = {
    "blocks": ("a {", "}", "{}", 1),
    "brackets in a condition": ("(", ")", "rule r when {} {{ }}", 1),
    "brackets that hold more": ("(stream or tools and ", ")", "rule r when {} {{ }}", 1),
    "nots": ("not ", "", "rule r when {} {{ }}", 1),
    "nots and brackets": ("not (", ")", "rule r when {} {{ }}", 2),
    "nots, then brackets that begin with a word": ("not not (stream and ", ")", "rule r when {} {{ }}", 3),
    "lists of calls": ("[f(", ")]", "a {}", 2),
}


@pytest.mark.slow
@pytest.mark.parametrize(("opening", "closing", "around", "depth"), NESTINGS.values(), ids=NESTINGS)
def test_nesting_has_a_bound_that_no_mixture_gets_around(opening: str, closing: str, around: str, depth: int) -> None:
    def nested(times: int) -> str:
        return around.replace("{}", opening * times + "stream" + closing * times, 1).replace("{{ }}", "{ }")

    most = NESTING_MAX // depth - 1  # one less: the rule's own block is as deep as one more
    assert "HM007" not in codes(nested(most))
    for times in (NESTING_MAX // depth + 1, 200, 5_000):
        assert codes(nested(times)) == ["HM007"]


@pytest.mark.parametrize(("nots", "brackets"), [(60, 4), (30, 33), (15, 48), (7, 60), (2, 40)])
def test_nots_are_counted_though_a_bracket_and_a_word_stand_between_them(nots: int, brackets: int) -> None:
    text = "rule r when " + ("not " * nots + "(stream and ") * brackets + "tools" + ")" * brackets + " { priority 2 }"

    assert codes(text) == ["HM007"]


@pytest.mark.parametrize(("opening", "times"), [("(", 63), ("(stream or tools and ", 63), ("not (", 31), ("not ", 63)])
def test_what_is_nested_as_deeply_as_allowed_is_compiled(opening: str, times: int) -> None:
    closing = ")" * (opening.count("(") * times)
    text = f"rule r when {opening * times}images{closing} {{ priority 2 }}\nprovider anthropic {{ }}\n"

    assert check("team.hmp", MemoryFiles({"team.hmp": text})).program is not None


@pytest.mark.slow
def test_what_was_closed_does_not_count() -> None:
    text = "rule r when " + " and ".join(["not (not (a))"] * 500) + " { }\n" + "a { b { } }\n" * 500

    assert codes(text) == []


def test_a_mistake_is_said_once_though_its_remedy_does_not_fit_either() -> None:
    assert codes("x [1)\nx when a = b\nx = { y 1 }\n") == ["HM004", "HM003", "HM003"]


def test_a_rate_with_blanks_is_no_path_where_something_else_is_wrong() -> None:
    assert codes("x 10MiB /Mtok\nx 10MiB\n/Mtok\ny [1,,2]\n") == ["HM003"]


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
@given(policies(), st.data())
def test_what_follows_a_statement_does_not_change_how_it_is_read(text: str, data: st.DataObject) -> None:
    broken = data.draw(st.sampled_from(sorted(BROKEN)))

    alone = parse(text, 0)[0].statements
    followed, problems = parse(f"{text}\n{BROKEN[broken][0]}\n", 0)

    assert [one.code for one in problems] == [BROKEN[broken][1]]
    assert bare(followed.statements[: len(alone)]) == bare(alone)


# ---- texts ----


def text_of(written: str) -> str:
    """What a quoted text stands for."""
    file, found = parse(f"rule r {{ deny {written} }}", 0)
    (rule,) = file.statements
    assert not found
    assert isinstance(rule, Item)
    assert rule.block is not None
    (deny,) = rule.block.statements
    assert isinstance(deny, Item)
    (argument,) = deny.args
    assert isinstance(argument, String)
    return argument.value


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r'"a\tb"', "a\tb"),
        (r'"a\nb"', "a\nb"),
        (r'"say \"when\""', 'say "when"'),
        (r'"C:\\new"', "C:\\new"),
        (r'"\\\\"', "\\\\"),
        ('""', ""),
    ],
)
def test_an_escape_stands_for_one_letter(written: str, meant: str) -> None:
    assert text_of(written) == meant


@given(st.text(st.sampled_from('ab"\\\n\t #{;é'), max_size=12))
def test_a_text_that_is_quoted_is_read_as_it_was(text: str) -> None:
    assert text_of(quote(text)) == text
