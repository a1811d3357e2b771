"""Settings in configuration files: all else stays as it is."""

from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.clients.config_text import ConfigFormat, NotEditable, edited, found, line

URL = "http://127.0.0.1:8787"
NAME = {ConfigFormat.JSON: ("env", "A_URL")}
FORMATS = list(ConfigFormat)


def name_of(kind: ConfigFormat) -> tuple[str, ...]:
    return NAME.get(kind, ("a_url",))


def put(kind: ConfigFormat, text: str) -> str:
    return edited(kind, text, {name_of(kind): line(kind, name_of(kind), URL)})


@pytest.mark.parametrize("kind", FORMATS)
def test_a_setting_is_found_where_it_was_put(kind: ConfigFormat) -> None:
    text = put(kind, "")
    assert found(kind, text, name_of(kind)) == line(kind, name_of(kind), URL)
    assert put(kind, text) == text
    assert found(kind, edited(kind, text, {name_of(kind): None}), name_of(kind)) is None


def test_a_setting_of_toml_goes_before_the_first_table_and_comments_stay() -> None:
    text = '# mine\nmodel = "m"  # why\n\n[profiles.a]\na_url = "of the profile"\n'
    new = put(ConfigFormat.TOML, text)
    assert new == f'a_url = "{URL}"\n{text}'
    assert tomllib.loads(new) == {**tomllib.loads(text), "a_url": URL}


def test_a_setting_that_stands_there_is_replaced_in_its_place() -> None:
    assert put(ConfigFormat.TOML, 'x = 1\na_url = "old"\n[t]\n') == f'x = 1\na_url = "{URL}"\n[t]\n'
    assert put(ConfigFormat.ENV, "K=1\r\nexport a_url=old\r\nL=2\r\n") == f"K=1\r\na_url={URL}\r\nL=2\r\n"
    assert put(ConfigFormat.YAML, "# c\na_url: old\nb: 1\n") == f"# c\na_url: {URL}\nb: 1\n"


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (ConfigFormat.TOML, 'x = """\na_url = 1\n"""\n', "not understood"),
        (ConfigFormat.TOML, 'a_url = """\nold"""\n', "can be read"),
        (ConfigFormat.TOML, "x = = 1\n", "can be read"),
        (ConfigFormat.JSON, '{ // mine\n "env": {}}', "comments"),
        (ConfigFormat.JSON, '{"env": 1}', "`env` is no object"),
        (ConfigFormat.JSON, '{"env": {}, "env": {}}', "twice"),
        (ConfigFormat.JSON, "[]", "no JSON object"),
        (ConfigFormat.YAML, "a_url:\n  - old\n", "several lines"),
        (ConfigFormat.YAML, "a_url: [\n  old]\n", "several lines"),
    ],
)
def test_a_file_that_is_not_understood_is_not_changed(kind: ConfigFormat, text: str, says: str) -> None:
    with pytest.raises(NotEditable, match=says):
        put(kind, text)


def test_json_keeps_its_indent_and_its_order() -> None:
    text = '{\n    "z": "ü",\n    "env": {\n        "B": "1"\n    },\n    "a": [\n        1\n    ]\n}\n'
    new = put(ConfigFormat.JSON, text)
    assert new == text.replace('"B": "1"\n', f'"B": "1",\n        "A_URL": "{URL}"\n')
    assert edited(ConfigFormat.JSON, new, {("env", "A_URL"): None}, text) == text


NAMES = st.sampled_from(["a", "b", "env", "A_URL", "hooks"])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(
    before=st.dictionaries(NAMES, TREES, max_size=4),
    indent=st.sampled_from([None, 2, 4, "\t"]),
    newline=st.booleans(),
)
def test_json_that_is_set_and_put_back_is_as_it_was(
    before: dict[str, object], indent: int | str | None, newline: bool
) -> None:
    if not isinstance(before.get("env", {}), dict):
        before.pop("env")
    text = json.dumps(before, indent=indent, ensure_ascii=False) + ("\n" if newline else "")
    path = ("env", "A_URL")
    was = found(ConfigFormat.JSON, text, path)
    new = put(ConfigFormat.JSON, text)
    after = json.loads(new)
    assert after["env"]["A_URL"] == URL
    after["env"].pop("A_URL")
    without = {**before, "env": {key: value for key, value in before.get("env", {}).items() if key != "A_URL"}}  # type: ignore[attr-defined]
    assert after == without
    assert list(after)[: len(before)] == list(before)
    if was is not None:
        assert json.loads(edited(ConfigFormat.JSON, new, {path: was}, text)) == before
    elif path[-1] not in before.get("env", {}):  # type: ignore[operator]
        assert json.loads(edited(ConfigFormat.JSON, new, {path: None}, text)) == before
