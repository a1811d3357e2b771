"""Settings in the text of a configuration file: read, set and removed, with everything else left as it is."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

Path = tuple[str, ...]


class ConfigFormat(StrEnum):
    """Syntax of a configuration file."""

    JSON = "JSON"
    TOML = "TOML"
    ENV = "env"
    YAML = "YAML"


class NotEditable(Exception):  # noqa: N818 - of the file's making
    """The text cannot be changed without touching what is not to be changed."""


def found(kind: ConfigFormat, text: str, path: Path) -> Any:
    """Return the value of a setting; of formats in lines, the whole line; None: it has none.

    Raises:
        NotEditable: The text cannot be read.
    """
    if kind is not ConfigFormat.JSON:
        at = _line_of(kind, text.splitlines(), path)
        return None if at is None else text.splitlines()[at]
    inner: Any = _json(text)
    for name in path:
        if not isinstance(inner, dict) or name not in inner:
            return None
        inner = inner[name]
    return inner


def line(kind: ConfigFormat, path: Path, value: str) -> Any:
    """Return what `found` returns of a setting with this value."""
    (*_, name) = path
    match kind:
        case ConfigFormat.JSON:
            return value
        case ConfigFormat.TOML:
            return f"{name} = {json.dumps(value)}"
        case ConfigFormat.ENV:
            return f"{name}={value}"
        case ConfigFormat.YAML:
            return f"{name}: {value}"


def edited(kind: ConfigFormat, text: str, changes: Mapping[Path, Any], keep: str = "") -> str:
    """Return the text with settings as `found` gives them; None removes one.

    Args:
        kind: Syntax of the text.
        text: Text of the file; empty: there is none.
        changes: The settings.
        keep: An earlier text; a JSON object that is empty after a removal stays if it is in there.

    Raises:
        NotEditable: The text cannot be read, or it has the settings in a form that is not understood.
    """
    if kind is ConfigFormat.JSON:
        return _edited_json(text, changes, keep)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines()
    for path, value in changes.items():
        at = _line_of(kind, lines, path)
        if at is not None:
            lines[at : at + 1] = [] if value is None else [value]
        elif value is not None:
            # A setting after the first table of a TOML file would belong to that table.
            lines.insert(0 if kind is ConfigFormat.TOML else len(lines), value)
    new = "".join(f"{one}{newline}" for one in lines)
    if kind is ConfigFormat.TOML:
        _hold_toml(text, new, changes)
    return new


def _hold_toml(old: str, new: str, changes: Mapping[Path, Any]) -> None:
    """Refuse an edit that changed anything else, such as a line within a string."""
    try:
        before, after = tomllib.loads(old), tomllib.loads(new)
    except tomllib.TOMLDecodeError as error:
        raise NotEditable(f"it is no TOML that can be read: {error}") from None
    for (name,), value in changes.items():
        before.pop(name, None)
        wanted = None if value is None else tomllib.loads(value)[name]
        if after.pop(name, None) != wanted:
            raise NotEditable(f"`{name}` stands in it in a form that is not understood")
    if before != after:
        raise NotEditable("the setting stands in it in a form that is not understood")


_LINES: Final = {
    ConfigFormat.TOML: r"\s*(?:{name}|\"{name}\")\s*=",
    ConfigFormat.ENV: r"\s*(?:export\s+)?{name}\s*=",
    ConfigFormat.YAML: r"{name}\s*:",
}


def _line_of(kind: ConfigFormat, lines: list[str], path: Path) -> int | None:
    (name,) = path
    pattern = re.compile(_LINES[kind].format(name=re.escape(name)))
    for number, one in enumerate(lines):
        if kind is ConfigFormat.TOML and one.lstrip().startswith("["):
            return None
        if pattern.match(one):
            if kind is ConfigFormat.YAML and _goes_on(one, lines[number + 1 : number + 2]):
                raise NotEditable(f"`{name}` has a value of several lines")
            return number
    return None


def _goes_on(one: str, following: list[str]) -> bool:
    """Return True if a value of YAML goes on in the next line."""
    rest = one.partition(":")[2].strip()
    is_open = not rest or rest[0] in "|>#&" or rest.count("[") != rest.count("]")
    return is_open or any(later[:1] in (" ", "\t", "-") and bool(later.strip()) for later in following)


def _edited_json(text: str, changes: Mapping[Path, Any], keep: str) -> str:
    root = _json(text)
    kept = _json(keep)
    for path, value in changes.items():
        if value is None:
            _remove(root, path, kept)
            continue
        inner = root
        for depth, name in enumerate(path[:-1]):
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise NotEditable(f"`{'.'.join(path[: depth + 1])}` is no object")
        inner[path[-1]] = value
    indent = re.search(r"\n([ \t]+)\S", text)
    end = "\n" if not text or text.endswith("\n") else ""
    # A text of one line stays one line.
    width = indent[1] if indent else (None if text.strip().startswith("{") and len(_json(text)) else 2)
    new = json.dumps(root, indent=width, ensure_ascii=False) + end
    return new.replace("\n", "\r\n") if "\r\n" in text else new


def _remove(root: dict[str, Any], path: Path, kept: dict[str, Any]) -> None:
    """Remove a setting, and objects around it that are empty then and were not there before."""
    name, *rest = path
    if name not in root:
        return
    if not rest:
        del root[name]
        return
    inner = root[name]
    if isinstance(inner, dict):
        was = kept.get(name)
        _remove(inner, tuple(rest), was if isinstance(was, dict) else {})
        if not inner and name not in kept:
            del root[name]


def _json(text: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise NotEditable("it has a name twice in one object")
        return dict(pairs)

    if not text.strip():
        return {}
    try:
        root = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise NotEditable(f"it is no JSON that can be read: {error} (comments are not understood)") from None
    if not isinstance(root, dict):
        raise NotEditable("it holds no JSON object")
    return root
