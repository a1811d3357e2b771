"""Settings that stand in another place than their own, and the edits that move them there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hivemind_trio.dialects import KNOWN_BASES
from hivemind_trio.policy.diagnostics.diagnostic import Fix
from hivemind_trio.policy.diagnostics.suggest import one_of
from hivemind_trio.policy.language.meant import AMOUNTS, NO, OWN, UNBOUNDED, YES
from hivemind_trio.policy.language.synonyms import RATES, Instead, synonym
from hivemind_trio.policy.schema import DECLARATIONS, Declaration, Naming, Setting, Slot, Type
from hivemind_trio.policy.source.edits import Edit, addition, deletion, insertion
from hivemind_trio.policy.source.span import Span
from hivemind_trio.policy.syntax.ast import Block, CallValue, Item, Name, Quantity, Rate, String, Value
from hivemind_trio.policy.syntax.foreign.blocks import no_variable

Text = Callable[[Span], str]
"""The text of a span."""

_PREFIXES: Final = frozenset({"set", "action", "return", "verdict", "decision", "do"})
"""Words before a setting in other languages."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WHOM: Final = frozenset({"for", "of", "on", "to", "agent", "team"})
_FIRST: Final = ("timeout", "limits")
"""Settings that come first of several with the same option."""


# ---- the words of a setting that needs none ----


def unknown_word(word: str) -> str | None:
    """Return the help for a setting of servers that this one leaves to others; None if it is none."""
    lower = word.lower().replace("_", "-")
    if lower in ("tls", "ssl", "https", "cert", "certificate") or lower.startswith(("ssl-", "tls-")):
        return "it speaks plain HTTP: put a TLS proxy in front of it, and name that one in `forwarded-by`"
    if lower in ("log-level", "loglevel", "log-file", "access-log", "error-log", "logfile"):
        return "the log goes to standard error: its format is `log text` or `log json`"
    return None


def needless(item: Item, setting: Setting, source: str) -> Instead | None:
    """Return the help for `concurrency unlimited`, `journal on` and `deny true`: the setting, or its word, is deleted.

    Args:
        item: The setting as written.
        setting: Its row of the schema.
        source: The text of its file.
    """
    if not setting.args or not item.args or not isinstance(item.args[0], Name):
        return None
    word, slot = item.args[0], setting.args[0]
    lower = word.text.lower()
    if word.text in slot.words or word.text in setting.options:
        return None
    whole = Fix((deletion(source, item.span),), is_safe=False)
    only = whole if len(item.args) == 1 else Fix((deletion(source, word.span),), is_safe=False)
    if slot.type in AMOUNTS and lower in UNBOUNDED | OWN:
        if setting.default:
            return Instead(word.span, f"delete `{item.head.text}`: its default is `{setting.default}`", None, whole)
        return Instead(word.span, f"delete `{item.head.text}`: without it there is no limit", None, whole)
    if slot.type is Type.TEXT and slot.optional and lower in YES and len(item.args) == 1:
        return Instead(word.span, f"delete `{word.text}`", None, Fix((deletion(source, word.span),), is_safe=False))
    if slot.type is Type.TEXT and slot.optional and lower in NO and len(item.args) == 1:
        return Instead(word.span, f"delete `{item.head.text}`", None, whole)
    if "off" in slot.words and lower in YES and setting.default != "off":
        what = item.head.text if only is whole else word.text
        return Instead(word.span, f"delete `{what}`: it is on unless it is `off`", None, only)
    return None


def bounds_in_block(item: Item, setting: Setting) -> Instead | None:
    """Return the help for `concurrency { min 2; max 8 }`; None if it is something else."""
    if item.args or item.block is None or not setting.args or setting.args[0].type is not Type.CONCURRENCY:
        return None
    bounds: dict[str, str] = {}
    for one in item.block.statements:
        match one:
            case Item(head=Name(text=("min" | "max") as word), args=(Quantity(text=bound),), block=None):
                bounds[word] = bound
            case _:
                return None
    if "max" not in bounds:
        return None
    put = (
        f"{item.head.text} {bounds['min']}..{bounds['max']}" if "min" in bounds else f"{item.head.text} {bounds['max']}"
    )
    return Instead(item.span, f"write `{put}`", put)


def labelled(item: Item) -> Instead | None:
    """Return the help for `resource "provider" "anthropic"`, as Terraform has it; None if it is something else."""
    match item.args:
        case (String(value=kind), String(value=name, span=last)) if kind in DECLARATIONS and _NAME.fullmatch(name):
            put = f"{kind} {name}"
            return Instead(item.head.span.to(last), f"write `{put}`", put)
    return None


# ---- settings beside the block of their declaration ----

_ALONE: Final[Mapping[tuple[str, type], str]] = {
    ("server", String): "listen",
    ("provider", String): "base",
    ("provider", CallValue): "key",
    ("provider", Quantity): "concurrency",
    ("agent", CallValue): "token",
    ("agent", Quantity): "concurrency",
    ("lane", Quantity): "weight",
    ("team", Quantity): "weight",
    ("retry", Quantity): "attempts",
    ("resource", Quantity): "capacity",
}
"""Kind of declaration and value -> the setting that a value without its name means."""


def beside_block(
    item: Item,
    rest: Sequence[Value],
    declaration: Declaration,
    settings: Mapping[str, Setting],
    names: Mapping[str, Sequence[str]],
    source: str,
) -> Instead | None:
    """Return the help for what stands between a declaration's name and its block; None if it is something else.

    Args:
        item: The declaration.
        rest: Its values behind the name.
        declaration: Its row of the schema.
        settings: The settings of its block.
        names: Kind -> names that the policy declares.
        source: The text of its file.
    """
    if not rest or (isinstance(rest[0], Name) and rest[0].text in declaration.options):
        return None
    span = rest[0].span.to(rest[-1].span)
    kind = item.head.text
    if (whom := _whom(rest, names)) is not None and declaration.when and item.when is None:
        put = f"when {whom}"
        return Instead(span, f"write `{put}`", put)
    body = _settings_in(kind, item, rest, settings, source)
    if body is not None:
        return _into_block(item, span, body, source)
    if declaration.naming is Naming.NAME and all(isinstance(one, Name) for one in item.args):
        words = [one.text for one in item.args if isinstance(one, Name)]
        if not {"do", "as", "is", "when", *settings} & set(words):
            whole = item.args[0].span.to(span)
            put = "-".join(words)
            return Instead(whole, f"a name is one word: write `{put}`", put)
    return None


def _whom(rest: Sequence[Value], names: Mapping[str, Sequence[str]]) -> str | None:
    """Return the condition for `for ci` and `agent ci` behind the name of a budget or a rule."""
    match rest:
        case (Name(text=word), Name(text=who)) if word in _WHOM:
            pass
        case (Name(text=who),) if who in (*names.get("agent", ()), *names.get("team", ())):
            word = ""
        case _:
            return None
    is_team = word == "team" or (who in names.get("team", ()) and who not in names.get("agent", ()))
    return f"{'team' if is_team else 'agent'} == {who}"


def _settings_in(
    kind: str, item: Item, rest: Sequence[Value], settings: Mapping[str, Setting], source: str
) -> str | None:
    """Return the settings that some values are, as a block has them."""
    first = rest[0]

    def written(value: Value) -> str:
        return source[value.span.start : value.span.end]

    if isinstance(first, Name) and first.text in settings:
        return "; ".join(statements_of(rest, settings, written))
    if len(rest) > 1:
        return None
    setting = _ALONE.get((kind, type(first)))
    if kind == "store" and isinstance(first, String):
        setting = "url" if "://" in first.value else "path"
    if kind == "budget" and isinstance(first, Rate):
        setting = "cost" if first.amount.text.startswith("$") else "tokens"
    return f"{setting} {written(first)}" if setting in settings else None


def statements_of(
    values: Sequence[Value], settings: Mapping[str, Setting], written: Callable[[Value], str]
) -> list[str]:
    """Divide `weight 1 queue 20` into settings."""
    parts: list[list[str]] = []
    current: Setting | None = None
    left = 0  # values that the current setting still takes
    for value in values:
        name = value.text if isinstance(value, Name) else ""
        if current is not None and name in current.options and not left:
            left = 1
        elif name in settings and not left:
            current = settings[name]
            left = sum(not slot.optional for slot in current.args)
            parts.append([])
        else:
            left = max(0, left - 1)
        parts[-1].append(written(value))
    return [" ".join(part) for part in parts]


def _into_block(item: Item, span: Span, body: str, source: str) -> Instead:
    """Return the help that moves settings into the block behind them."""
    if item.block is None and item.when is None:
        return Instead(span, f"write `{{ {body} }}`", f"{{ {body} }}")
    gone = Edit(Span(span.source, len(source[: span.start].rstrip()), span.end), "")
    if item.block is None:
        end = item.span.end
        added = Edit(Span(span.source, end, end), f" {{ {body} }}")
    else:
        added = insertion(source, item.block.span, body, is_empty=not item.block.statements)
    return Instead(span, f"write `{body}` in the block", None, Fix((gone, added)))


# ---- settings in the wrong block ----


def in_wrong_block(
    item: Item, block: Block | None, settings: Mapping[str, Setting], owner: Item | None, source: str
) -> Instead | None:
    """Return the help for a word that is no setting of its block, but a part of one; None if it is something else.

    Args:
        item: The statement.
        block: The block that it stands in.
        settings: The settings of the block.
        owner: The declaration that it stands in.
        source: The text of its file.
    """
    word = item.head.text
    if word in _PREFIXES and item.args and isinstance(item.args[0], Name) and item.args[0].text in settings:
        put = source[item.args[0].span.start : item.span.end]
        return Instead(item.span, f"write `{put}`", put)
    return (
        _option(item, block, settings, source)
        or _limit(item, block, settings, source)
        or _nested(item, settings, source)
        or (_condition(item, owner, source) if owner is not None else None)
    )


def _option(item: Item, block: Block | None, settings: Mapping[str, Setting], source: str) -> Instead | None:
    """Return the help for `total 30s` on a line of its own: an option stands behind its setting."""
    word = item.head.text
    homes = [name for name, setting in settings.items() if word in setting.options and _fits(item, setting, word)]
    written = source[item.span.start : item.span.end]
    for sibling in block.statements if block is not None else ():
        if not isinstance(sibling, Item) or sibling.head.text not in homes or sibling.block is not None:
            continue
        if any(isinstance(one, Name) and one.text == word for one in sibling.args):
            continue
        end = sibling.span.end
        joined = f"{source[sibling.span.start : end]} {written}"
        fix = Fix((Edit(Span(item.span.source, end, end), f" {written}"), deletion(source, item.span)))
        return Instead(item.head.span, f"it is an option of `{sibling.head.text}`: write `{joined}`", None, fix)
    home = next((name for name in _FIRST if name in homes), homes[0] if len(homes) == 1 else None)
    if home is None or any(not slot.optional for slot in settings[home].args):
        return None
    put = f"{home} {written}"
    return Instead(item.span, f"it is an option of `{home}`: write `{put}`", put)


def _fits(item: Item, setting: Setting, word: str) -> bool:
    """Return True if an option takes one value, and the statement has one that it may be."""
    multiple = setting.options[word].type is Type.MULTIPLE
    value = item.args[0] if len(item.args) == 1 else None
    return value is not None and multiple == (isinstance(value, Quantity) and value.text.endswith("x"))


_LIMITED: Final = frozenset({"requests", "input", "output", "tokens"})


def _limit(item: Item, block: Block | None, settings: Mapping[str, Setting], source: str) -> Instead | None:
    """Return the help for `requests 50/min` and `rpm 50` beside `limits`: all of them stand in its block."""
    limits = settings.get("limits")
    if limits is None or limits.block is None or (said := _as_limit(item, source)) is None:
        return None
    statements = [one for one in (block.statements if block is not None else ()) if isinstance(one, Item)]
    there = next((one for one in statements if one.head.text == "limits" and not one.args and one.block), None)
    others = [one for one in statements if _as_limit(one, source) is not None]
    whole = "; ".join(text for one in others if (text := _as_limit(one, source)) is not None)
    help_ = f"write `limits {{ {whole or said} }}`"
    if there is not None and there.block is not None:
        added = insertion(source, there.block.span, said, is_empty=not there.block.statements)
        fix = Fix((added, deletion(source, item.span)))
        return Instead(item.span, f"write `{said}` in the block of `limits`", None, fix)
    if len(others) > 1:
        edits = [Edit(others[0].span, f"limits {{ {whole} }}"), *(deletion(source, one.span) for one in others[1:])]
        return Instead(item.span, help_, None, Fix(tuple(edits)) if item is others[0] else None)
    return Instead(item.span, help_, f"limits {{ {said} }}")


def _as_limit(item: Item, source: str) -> str | None:
    """Return a limit as `limits` has it; None if the statement is none."""
    word = item.head.text.lower()
    written = " ".join(source[one.span.start : one.span.end] for one in item.args)
    if word in _LIMITED:
        return f"{word} {written}" if item.args and isinstance(item.args[0], (Rate, Quantity)) else None
    if word not in RATES:
        return None
    setting, window = RATES[word]
    match item.args:
        case (Rate(),):
            return f"{setting} {written}"
        case (Quantity(),):
            return f"{setting} {written}/{window}"
    return f"{setting} 50/{window}"


def _nested(item: Item, settings: Mapping[str, Setting], source: str) -> Instead | None:
    """Return the help for `deny` in a budget, and `reserve` in a provider: each is in the block of another setting."""
    word = item.head.text
    homes = [name for name, one in settings.items() if one.block is not None and word in one.block and name != "limits"]
    if len(homes) != 1:
        return None
    (home,) = homes
    slots = settings[home].args
    written = source[item.span.start : item.span.end]
    if home == "at":
        shares = [one for one in item.args if isinstance(one, Quantity) and one.text.endswith("%")]
        share = shares[0].text if shares else "80%" if word == "warn" else "100%"
        put = f"at {share} {{ {word if shares else written} }}"
        return Instead(item.span, f"write `{put}`", put)
    if any(not slot.optional for slot in slots):
        return None
    put = f"{home} {{ {written} }}"
    return Instead(item.span, f"write `{put}`", put)


def _condition(item: Item, owner: Item, source: str) -> Instead | None:
    """Return the help for `agent ci` in a budget: whom it is for stands before the block."""
    match item:
        case Item(head=Name(text=("agent" | "team") as field), args=(Name(text=who),), block=None) if (
            owner.head.text in ("budget", "rule") and owner.block is not None
        ):
            condition = f"{field} == {who}"
            gone = deletion(source, item.span)
            if owner.when is None:
                start = len(source[: owner.block.span.start].rstrip())
                added = Edit(Span(item.span.source, start, start), f" when {condition}")
                return Instead(item.span, f"write `when {condition}` before the block", None, Fix((added, gone)))
            end = owner.when.span.end
            added = Edit(Span(item.span.source, end, end), f" and {condition}")
            return Instead(item.span, f"write `and {condition}` behind the condition", None, Fix((added, gone)))
    return None


# ---- settings that are a declaration of their own ----


def elsewhere(item: Item, owner: Item | None, names: Mapping[str, Sequence[str]], source: str) -> Instead | None:
    """Return the help for a setting that is a declaration of its own: a budget or a rule of an agent, retries.

    Args:
        item: The statement.
        owner: The declaration that it stands in.
        names: Kind -> names that the policy declares.
        source: The text of its file.
    """
    word = item.head.text
    written = " ".join(source[one.span.start : one.span.end] for one in item.args)
    if owner is not None and owner.head.text == "provider" and "default" not in names.get("retry", ()):
        body = _retry_body(item, source)
        if body is not None:
            return _declared(item, f"retry default {{ {body} }}", source)
    if owner is None or owner.head.text != "agent" or not owner.args or not isinstance(owner.args[0], Name):
        return None
    agent = owner.args[0].text
    match word, item.args:
        case "budget", (Rate(amount=amount),) if agent not in names.get("budget", ()):
            setting = "cost" if amount.text.startswith("$") else "tokens"
            return _declared(item, f"budget {agent} when agent == {agent} {{ {setting} {written} }}", source)
        case "budget", (Name(text=budget),) if budget in names.get("budget", ()):
            help_ = f"a budget says whom it is for: `budget {budget} when agent == {agent} {{ ... }}`"
            return Instead(item.head.span, help_, None)
        case (("allow" | "models" | "serves" | "allowed_models"), (value,)) if re.match(r'\[?\s*"', written):
            name = _free(f"{agent}-models", names)
            globs = written if written.startswith("[") else f"[{written}]"
            del value
            return _declared(item, f"rule {name} when agent == {agent} and not model ~ {globs} {{ deny }}", source)
        case (("model" | "deny" | "hold" | "tag" | "warn" | "max-output" | "deadline" | "provider" | "retry"), _):
            name = _free(f"{agent}-{word}", names)
            body = f"{word} {written}".rstrip()
            return _declared(item, f"rule {name} when agent == {agent} {{ {body} }}", source)
    return None


def _retry_body(item: Item, source: str) -> str | None:
    """Return the block of a retry class for `retry { attempts 3 }`, `retry 3` and `max_retries 3`."""
    word = item.head.text.lower().replace("_", "-")
    match item.args:
        case () if word == "retry" and item.block is not None and item.block.statements:
            return source[item.block.span.start + 1 : item.block.span.end - 1].strip()
        case (Quantity(text=text),) if text.isdecimal() and word in ("retry", "attempts"):
            return f"attempts {max(1, int(text))}"
        case (Quantity(text=text),) if text.isdecimal() and word in ("retries", "max-retries", "num-retries"):
            return f"attempts {int(text) + 1}"
    return None


def _free(name: str, names: Mapping[str, Sequence[str]]) -> str:
    """Return a name of a rule that is not taken."""
    taken = names.get("rule", ())
    return next(one for one in (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3))) if one not in taken)


def _declared(item: Item, declaration: str, source: str) -> Instead:
    """Return the help that puts a declaration at the end of the file, in place of a setting."""
    added = addition(source, item.span.source, declaration)
    return Instead(
        item.head.span,
        f"declare it at the top level: `{declaration}`",
        None,
        Fix((deletion(source, item.span), added), is_safe=False),
    )


# ---- what stands behind a setting ----


def behind(values: Sequence[Value], settings: Mapping[str, Setting], slots: Mapping[str, Slot], source: str) -> Instead:
    """Return the help for values that a setting does not take: they begin the next setting, or are deleted.

    Args:
        values: Those that are left.
        settings: The settings of the block.
        slots: The options of the setting.
        source: The text of the file.
    """
    first = values[0]
    text = source[first.span.start : first.span.end]
    if isinstance(first, Name) and first.text in settings:
        begun = statements_of(values, settings, lambda one: source[one.span.start : one.span.end])
        put = "".join(f"; {statement}" for statement in begun)
        fix = Fix.replacing(first.span.to(values[-1].span), put)
        return Instead(first.span, f"a setting begins on a new line or after a `;`: write `; {text}`", None, fix)
    option = next(iter(slots)) if len(slots) == 1 else "total" if "total" in slots else None
    if option is not None and not isinstance(first, Name):
        put = f"{option} {text}"
        return Instead(first.span, f"write `{put}`", put)
    span = first.span.to(values[-1].span)
    fix = Fix((deletion(source, span),), is_safe=False)
    return Instead(span, f"delete `{source[span.start : span.end]}`", None, fix)


# ---- declarations of other languages ----

_DECLARED_AS: Final = {"import": "include", "version": "hmp", "backend": "provider", "user": "agent", "route": "rule"}
"""Words of other languages for a declaration."""


def other_declaration(item: Item, source: str) -> Instead | None:
    """Return the help for a declaration by the word of another language, or without its own; None if it is none."""
    word = item.head.text
    blocks = [one for one in item.block.statements if isinstance(one, Item)] if item.block is not None else []
    kind = word.removesuffix("s")
    if (
        word not in DECLARATIONS
        and kind in DECLARATIONS
        and not item.args
        and blocks
        and all(one.block for one in blocks)
    ):
        put = "\n".join(f"{kind} {source[one.span.start : one.span.end]}" for one in blocks)
        first = put.partition("\n")[0]
        return Instead(item.span, f"declare each by itself: `{first}`", put)
    if word in KNOWN_BASES and not item.args:
        put = f"provider {word}"
        return Instead(item.head.span, f"write `{put}`", put)
    if (meant := _DECLARED_AS.get(word)) is not None:
        put = "hmp 1" if meant == "hmp" else meant
        return Instead(item.span if meant == "hmp" else item.head.span, f"write `{put}`", put)
    if (limit := _as_limit(item, source)) is not None and word.lower() in RATES:
        return Instead(item.head.span, f"it belongs in a provider: `provider NAME {{ limits {{ {limit} }} }}`", None)
    if word == "variable" and len(item.args) == 1 and isinstance(item.args[0], String):
        fix = Fix((deletion(source, item.span),), is_safe=False)
        return Instead(item.span, no_variable(item.args[0].value), None, fix)
    if word == "model_list":
        put = "provider openai { key env(OPENAI_API_KEY) }"
        return Instead(item.head.span, f"declare each provider, such as `{put}`: it serves all its models", None)
    if (setting := synonym(word)) is not None:
        homes = [kind for kind, declaration in DECLARATIONS.items() if setting in declaration.settings]
        return Instead(item.head.span, f"`{setting}` belongs in {one_of(homes)}", None)
    return None
