"""Files of another format that are given as a policy: YAML, JSON and TOML, LiteLLM's among them."""

from __future__ import annotations

import re
from typing import Final, final

import attrs

from hivemind_trio.dialects import KNOWN_BASES
from hivemind_trio.policy.schema import DECLARATIONS

_COMMENT: Final = re.compile(r"[ \t]*(?:#.*)?\n?")
_TABLE: Final = re.compile(r"\[\[?[A-Za-z_][\w.\"-]*\]\]?[ \t]*(?:#.*)?")
_KEY: Final = re.compile(r"([A-Za-z_][\w-]*):(?:[ \t].*)?")
_JSON: Final = re.compile(r"\s*(?:\{\s*\"[^\"\n]*\"\s*:|\[\s*[{\"])")
_ENTRY: Final = re.compile(r"^[ \t]*(?:- )?[\"']?[\w-]+[\"']?:(?:[ \t]|$)", re.MULTILINE)
_BLOCK: Final = re.compile(r"^[A-Za-z_]+(?:[ \t][^:\n]*)?\{", re.MULTILINE)
"""A line of a policy."""

_MODEL: Final = re.compile(r"[\"']?\bmodel[\"']?:\s*[\"']?([\w-]+)/([\w.:/@-]+)")
_SECRET: Final = re.compile(r"[\"']?api_key[\"']?:\s*[\"']?os\.environ/(\w+)")
_BASE: Final = re.compile(r"[\"']?api_base[\"']?:\s*[\"']?(https?://[^\s\"',}]+)")
_RATES: Final = {"requests": re.compile(r"\brpm[\"']?:\s*(\d+)"), "tokens": re.compile(r"\btpm[\"']?:\s*(\d+)")}
_RETRIES: Final = re.compile(r"\bnum_retries[\"']?:\s*(\d+)")
_USUAL: Final = "provider anthropic { key env(ANTHROPIC_API_KEY) }"


@final
@attrs.frozen
class OtherFormat:
    """A file that is no policy."""

    message: str
    help: str
    span: tuple[int, int]
    """Its first line that says something."""


def other_format(text: str) -> OtherFormat | None:
    """Return the format of a text that is no policy; None if it may be one."""
    start = 0
    while start < len(text) and (blank := _COMMENT.match(text, start)) is not None and blank.end() > start:
        start = blank.end()
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    name = _format(text[start:end].rstrip(), text)
    if name is None:
        return None
    is_litellm = re.search(r"\bmodel_list\b|\blitellm_", text) is not None
    article = "a configuration of LiteLLM" if is_litellm else name
    return OtherFormat(
        f"this is {article}, not a policy", f"its providers as a policy: `{_as_policy(text)}`", (start, end)
    )


def _format(line: str, text: str) -> str | None:
    """Return the name of the format that a text with this first line has."""
    if _JSON.match(text):
        return "JSON"
    if _TABLE.fullmatch(line):
        return "TOML"
    key = _KEY.fullmatch(line)
    is_key = key is not None and key[1] not in DECLARATIONS and len(_ENTRY.findall(text)) > 1
    is_yaml = line == "---" or is_key or line.startswith("- ")
    return "YAML" if is_yaml and _BLOCK.search(text) is None else None


def _as_policy(text: str) -> str:
    """Return the providers of a configuration of LiteLLM, or the usual one."""
    entries = list(_MODEL.finditer(text))
    providers: dict[str, list[tuple[str, str]]] = {}
    ends = [*(entry.start() for entry in entries[1:]), len(text)]
    for entry, end in zip(entries, ends if entries else [], strict=True):
        part = text[entry.start() : end]
        providers.setdefault(entry[1].lower(), []).append((entry[2], part))
    if not providers:
        return _USUAL
    statements = [_provider(name, models) for name, models in providers.items()]
    if (retries := _RETRIES.search(text)) is not None:
        statements.append(f"retry default {{ attempts {int(retries[1]) + 1} }}")
    return "; ".join(statements)


def _provider(name: str, models: list[tuple[str, str]]) -> str:
    """Return the declaration of a provider with the keys and limits of its models."""
    keys = dict.fromkeys(found[1] for _, part in models if (found := _SECRET.search(part)) is not None)
    base = next((found[1] for _, part in models if (found := _BASE.search(part)) is not None), None)
    settings = [] if name in KNOWN_BASES else ["api openai"]
    if base is not None or name not in KNOWN_BASES:
        shown = base or "https://llm.example.com/v1"
        settings.append(f'base "{shown}"')
    if len(keys) == 1:
        settings.append(f"key env({next(iter(keys))})")
    elif keys:
        settings += [f"account key-{number} {{ key env({key}) }}" for number, key in enumerate(keys, 1)]
    limited: dict[str, str] = {}
    for model, part in models:
        rates = [f"{what} {found[1]}/min" for what, rate in _RATES.items() if (found := rate.search(part)) is not None]
        if rates:
            body = "; ".join(rates)
            limited.setdefault(model, f'limits "{model}" {{ {body} }}')
    body = "; ".join([*settings, *limited.values()])
    return f"provider {name} {{ {body} }}" if body else f"provider {name} {{ }}"
