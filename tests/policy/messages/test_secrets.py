"""A key in a policy is an error wherever it stands, and no output repeats it."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind_trio.policy import FORMATS, Checked, MemoryFiles, check, masked, render
from hivemind_trio.policy.source.secret_scan import find_keys
from tests.policy.layouts import policies

# Put together here, so that nothing that looks for keys in this repository finds one. Their shapes are public.
KEYS = {
    "an Anthropic key": "sk-ant-" + "api03-Zm9vYmFyYmF6cXV4-_Aa",
    "an OpenAI key": "sk-" + "proj-T3BlbkFJ_Zm9vYmFyYmF6",
    "a Google key": "AIza" + "SyZm9vYmFyYmF6cXV4-_Zm9vYmFyYmF6",
    "an AWS key": "AKIA" + "IOSFODNN7EXAMPLE",
    "a GitHub token": "ghp_" + "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6",
    "a Slack token": "xoxb-" + "1234567890-Zm9vYmFyYmF6",
}
KEY = KEYS["an Anthropic key"]

PLACES = {
    "a comment": "# {}\nprovider anthropic {{ }}\n",
    "a comment without a space": "#{}\nprovider anthropic {{ }}\n",
    "a comment at the end of a line": "provider anthropic {{ }}  # was {} until May\n",
    "a comment at the end of the file": "provider anthropic {{ }} #{}",
    "a comment in a list": "provider anthropic {{ serves [ # {}\n] }}\n",
    "a list in a comment": "# keys:\n# - {}\n#-{}\nprovider anthropic {{ }}\n",
    "an assignment in a comment": "# export KEY={}\nprovider anthropic {{ }}\n",
    "an option in a comment": "# --key={} --{}\nprovider anthropic {{ }}\n",
    "a header in a comment": "# Authorization: Bearer {}, x-api-key:{}\nprovider anthropic {{ }}\n",
    "JSON in a comment": '# {{"key":"{}"}}\nprovider anthropic {{ }}\n',
    "a comment that allows something": "# hmp: allow HM308 {}\nlane x {{ }}\nprovider anthropic {{ }}\n",
    "the place of a key": 'provider anthropic {{ key "{}" }}\n',
    "a list of keys": 'provider anthropic {{ key [env(A), "{}"] }}\n',
    "the place of a token": 'agent ci {{ token "{}" }}\nprovider anthropic {{ }}\n',
    "without its quotes": "provider anthropic {{ key {} }}\n",
    "the name of a variable": "provider anthropic {{ key env({}) }}\n",
    "the name of a file": 'provider anthropic {{ key file("{}") }}\n',
    "in a path": 'provider anthropic {{ key file("/keys/{}/it") }}\n',
    "a URL": 'provider lab {{ api vllm; base "https://{}@lab/v1" }}\n',
    "a URL's query": 'provider lab {{ api vllm; base "https://lab/v1?key={}" }}\n',
    "a text": 'rule no {{ deny "use {} instead" }}\nprovider anthropic {{ }}\n',
    "a line of a text": 'rule no {{ deny "use\\n{}\\tor\\t{}" }}\nprovider anthropic {{ }}\n',
    "quotes in a text": 'rule no {{ deny "use \\"{}\\"" }}\nprovider anthropic {{ }}\n',
    "behind a bad escape": 'rule no {{ deny "\\{}" }}\nprovider anthropic {{ }}\n',
    "a name": "lane {} {{ }}\nprovider anthropic {{ }}\n",
    "a reference": "rule r {{ lane {} }}\nprovider anthropic {{ }}\n",
    "a declaration": "{} {{ }}\nprovider anthropic {{ }}\n",
    "a setting": "provider anthropic {{ {} 4 }}\n",
    "an option": "provider anthropic {{ timeout {} 4s }}\n",
    "a choice": "provider anthropic {{ open {} }}\n",
    "a `let`": 'let k = "{}"\nprovider anthropic {{ key k }}\n',
    "a `let` through itself": "let {} = {}\nprovider anthropic {{ }}\n",
    "a `let` in a list": 'let k = ["{}"]\nprovider anthropic {{ key k; serves k }}\n',
    "a condition": 'rule r when header.authorization == "Bearer {}" {{ priority 2 }}\nprovider anthropic {{ }}\n',
    "a condition's list": 'rule r when model in ["x", "{}"] {{ priority 2 }}\nprovider anthropic {{ }}\n',
    "a field": 'rule r when {} == "x" {{ priority 2 }}\nprovider anthropic {{ }}\n',
    "a header's name": 'rule r when header.{} == "x" {{ priority 2 }}\nprovider anthropic {{ }}\n',
    "a glob": 'provider anthropic {{ serves ["{}*"] }}\n',
    "an include": 'include "{}"\nprovider anthropic {{ }}\n',
    "a test's title": 'test "{}" {{ given {{ hour 3 }}; expect lane == default }}\nprovider anthropic {{ }}\n',
    "a text that never ends": 'provider anthropic {{ key "{}\n}}\n',
    "other quotes": "provider anthropic {{ key '{}' }}\n",
    "behind `=`": "provider anthropic {{ key = {} }}\n",
    "behind `=` and in quotes": 'provider anthropic {{ key = "{}" }}\n',
    "behind a colon": "provider anthropic {{ key: {} }}\n",
    "where nothing belongs": "}} {} ]\nprovider anthropic {{ }}\n",
    "at the end of a broken file": "provider anthropic {{ serves [{}",
    "nested too deeply": "rule r when " + "(" * 70 + "{}",
    "twice": '# {}\nrule r when agent == "{}" {{ priority 2 }}\nprovider anthropic {{ }}\n',
    "far to the right": "provider anthropic {{ }} # " + "-" * 300 + " {} " + "-" * 300 + "\n",
    "beside letters of other alphabets": "# clé{}界{}é\nprovider anthropic {{ }}\n",
    "lines of Windows": "provider anthropic {{\r\n  key {}\r\n}}\r\n",
}


def policy(place: str, key: str) -> str:
    return place.format(*[key] * 3)


def checked(text: str) -> Checked:
    return check("team.hmp", MemoryFiles({"team.hmp": text}))


def outputs(*several: Checked) -> list[str]:
    plain = [render(several, format_, color=color) for format_ in FORMATS for color in (False, True)]
    # What a machine reads has escapes of its own.
    return [*plain, *(str(json.loads(render(several, format_))) for format_ in ("json", "sarif"))]


def assert_hidden(key: str, *several: Checked) -> None:
    """No piece of the key that is of any use is in any output."""
    secret = key[6:]
    pieces = {secret[start : start + 6] for start in range(len(secret) - 5)}
    for output in outputs(*several):
        assert not [piece for piece in pieces if piece in output]


# ---- in a policy ----


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_key_is_an_error_wherever_it_stands_and_is_not_repeated(place: str) -> None:
    text = policy(place, KEY)

    found = checked(text)

    assert found.program is None
    spans = {(one.span.start, one.span.end) for one in found.diagnostics if one.code == "HM208"}
    assert {(one.start(), one.end()) for one in re.finditer(re.escape(KEY), text)} <= spans
    assert_hidden(KEY, found)


@pytest.mark.parametrize(
    "place", ["a comment", "the place of a key", "a line of a text", "a name", "a text that never ends"]
)
@pytest.mark.parametrize(("kind", "key"), KEYS.items(), ids=KEYS)
def test_a_key_of_every_provider_is_known_and_called_by_its_name(kind: str, key: str, place: str) -> None:
    found = checked(policy(PLACES[place], key))

    assert f"this looks like {kind}" in {one.message for one in found.diagnostics if one.code == "HM208"}
    assert_hidden(key, found)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_key_in_an_included_file_is_an_error_there(place: str) -> None:
    texts = {"team.hmp": 'include "common/x.hmp"\nprovider openai { }\n', "common/x.hmp": policy(place, KEY)}

    found = check("team.hmp", MemoryFiles(texts))

    leaks = [one for one in found.diagnostics if one.code == "HM208"]
    # What nests too deeply is not read to its first declaration, so it is no policy, and nothing of it is quoted.
    is_policy = all(one.code != "HM011" for one in found.diagnostics)
    assert is_policy or place.count("(") > 60
    assert {found.sources[one.span.source].name for one in leaks} == ({"common/x.hmp"} if is_policy else set())
    assert_hidden(KEY, found, check("common/x.hmp", MemoryFiles(texts)))


def test_each_of_several_keys_on_a_line_is_reported_and_hidden() -> None:
    text = f'provider anthropic {{ key ["{KEY}", {KEYS["a Google key"]}] }} # {KEYS["a Slack token"]}\n'

    found = checked(text)

    kinds = [one.message for one in found.diagnostics if one.code == "HM208"]
    assert kinds == [
        "this looks like an Anthropic key",
        "this looks like a Google key",
        "this looks like a Slack token",
    ]
    for key in KEYS.values():
        assert_hidden(key, found)


def test_a_key_cannot_be_allowed() -> None:
    found = checked(f"# hmp: allow HM208 it is a test key\n# {KEY}\nprovider anthropic {{ }}\n")

    assert "HM208" in {one.code for one in found.diagnostics}
    assert found.program is None


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(text=policies(), key=st.sampled_from(sorted(KEYS.values())), data=st.data())
def test_a_key_put_anywhere_into_any_policy_is_reported_and_hidden(text: str, key: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    around = st.sampled_from([" ", '"', "\n", "=", ",", "(", "{", "}", "#", "/", ":", "é", "\\n", " -"])
    before, after = data.draw(around), data.draw(around.filter(lambda sign: sign != " -"))

    found = checked(text[:cut] + before + key + after + text[cut:])

    assert "HM208" in {one.code for one in found.diagnostics}
    assert_hidden(key, found)


# ---- what is none ----


@pytest.mark.parametrize(
    "text",
    [
        "", "sk-", "sk-ant-", "sk-ant-short", "sk-short", "AIza", "AKIA", "akiaiosfodnn7example", "ghp_short", "xoxb-",
        "claude-sonnet-4-5-20250929", "desk-of-the-person-in-the-corner", "task-sk-ip", "ANTHROPIC_API_KEY",
        "sk_ant_api03",
        "risk-assessment-of-the-quarter", "SK-ANT-API03-ZM9VYMFYYMF6", "4" * 40, "0123456789abcdef" * 4,
    ],
)  # fmt: skip
def test_what_only_resembles_a_key_is_none(text: str) -> None:
    assert not list(find_keys(f"a {text} b"))
    assert masked(text) == text


# ---- hiding ----

FRAGMENTS = st.sampled_from([*KEYS.values(), "\\n", "-", "_", '"', "://", "@"])


@given(st.lists(st.one_of(st.text(max_size=12), FRAGMENTS), max_size=8))
def test_hiding_moves_nothing_and_is_done_at_once(parts: list[str]) -> None:
    text = "".join(parts)
    hidden = masked(text)

    assert len(hidden) == len(text)
    assert all(letter in (before, "*") for before, letter in zip(text, hidden, strict=True))
    assert masked(hidden) == hidden
    assert not list(find_keys(hidden))


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_of_a_key_its_beginning_is_left_so_that_its_owner_knows_it(key: str) -> None:
    assert masked(f"a {key} b") == f"a {key[:6]}{'*' * (len(key) - 6)} b"


@pytest.mark.parametrize("kind", KEYS)
def test_what_is_glued_to_a_key_is_hidden_with_it_be_it_another_key(kind: str) -> None:
    hidden = masked(f"a {KEYS[kind]}{KEY} b {KEYS[kind]}-{KEY}")

    assert KEY[6:12] not in hidden
    assert not list(find_keys(hidden))


@pytest.mark.parametrize(
    ("url", "hidden"),
    [
        ("http://me:pw@lab/v1", "http://*****@lab/v1"),
        ("https://token@lab", "https://*****@lab"),
        ("https://lab/@me", "https://lab/@me"),
        ("https://lab/v1 me@home", "https://lab/v1 me@home"),
        ("http://a:b@c http://d:e@f", "http://***@c http://***@f"),
    ],
)
def test_a_password_in_a_url_is_hidden(url: str, hidden: str) -> None:
    assert masked(url) == hidden


def test_a_password_in_the_url_of_a_provider_is_shown_in_no_format() -> None:
    found = checked('provider lab { api vllm; base "http://me:hunter2@127.0.0.1:8000" }  # http://me:hunter2@lab\n')

    assert "HM217" in {one.code for one in found.diagnostics}
    assert not [output for output in outputs(found) if "hunter2" in output]


@pytest.mark.parametrize(
    "text", ["-" * (1 << 20), "_-" * (1 << 19), "://" * (1 << 18), "a" * (1 << 20), "sk-" * (1 << 18)]
)
def test_a_very_long_word_is_looked_through_once(text: str) -> None:
    # Were it looked through again from each of its letters, this would not end today.
    assert len(masked(text)) == len(text)
