"""Pages of declarations, settings and names: HM101 to HM190."""

from __future__ import annotations

from typing import Final

from .page import Page, not_reported

PAGES: Final = (
    Page(
        "HM101",
        "unknown declaration",
        "Declarations are at the top level of a file: `server`, `provider`, `lane`, `agent`, `rule` and the "
        "others of the reference.",
        wrong="provder anthropic { }",
        right="provider anthropic { }",
    ),
    Page(
        "HM102",
        "unknown setting",
        "The declaration has no such setting. The help names the declaration that has it, if there is one.",
        wrong="provider anthropic { concurency 4 }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM103",
        "statement that is not allowed here",
        "A statement, a `when` or a block at a place where it has no meaning.",
        wrong="provider anthropic when stream { concurrency 4 }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM104",
        "duplicate declaration",
        "Kind and name identify a declaration over all included files; a later one does not override an earlier "
        "one. To vary a declaration, use `extends`.",
        wrong="team a { }\nteam a { }\nagent x { team a }\nprovider anthropic { }",
        right="team a { }\nteam b { }\nagent x { team a }\nagent y { team b }\nprovider anthropic { }",
    ),
    Page(
        "HM105",
        "duplicate setting",
        "The policy does not say which of the two values is meant.",
        wrong="provider anthropic { concurrency 4; concurrency 8 }",
        right="provider anthropic { concurrency 8 }",
    ),
    Page(
        "HM106",
        "missing required setting",
        "No default would be right. A provider whose name is not well known needs its dialect (`api`) and its "
        "address (`base`).",
        wrong="provider lab { concurrency 4 }",
        right='provider lab { api vllm; base "http://127.0.0.1:8000"; concurrency 4 }',
    ),
    Page(
        "HM107",
        "undeclared name",
        "A reference to a lane, team, provider or retry class that neither the file nor its includes declare. The "
        "lane and the retry class `default` need no declaration.",
        wrong="lane batch { }\nrule ci { lane bach }\nprovider anthropic { }",
        right="lane batch { }\nrule ci { lane batch }\nprovider anthropic { }",
    ),
    Page(
        "HM108",
        "circular `extends`",
        "The note shows the cycle.",
        wrong="provider anthropic extends openai { }\nprovider openai extends anthropic { }",
        right="provider anthropic { concurrency 4 }\nprovider openai { concurrency 4 }",
    ),
    Page(
        "HM109",
        "`extends` of another kind",
        "A provider extends a provider, an agent an agent.",
        wrong="lane fast { }\nprovider anthropic extends fast { }",
        right="defaults provider { concurrency 4 }\nprovider anthropic { }",
    ),
    Page(
        "HM110",
        "circular `let`",
        "The note shows the cycle.",
        wrong="let a = b\nlet b = a\nprovider anthropic { }",
        right='let a = ["claude-*"]\nrule r when model ~ a { priority 2 }\nprovider anthropic { }',
    ),
    Page(
        "HM111",
        "reserved name",
        "`unknown` is the agent of callers that are not declared, and `none` is the team of agents without one. A "
        "`let` cannot have the name of a field.",
        wrong="agent unknown { }\nprovider anthropic { }",
        right="agent visitor { }\nprovider anthropic { }",
    ),
    Page(
        "HM112",
        "missing or unknown argument",
        "Values come first, then pairs of option and value, then the block. The help lists the choices.",
        wrong="provider anthropic { timeout 5s }",
        right="provider anthropic { timeout connect 5s }",
    ),
    Page(
        "HM113",
        "ambiguous globs",
        "Two `limits` blocks or two `model` declarations match the same models and are equally specific, so neither "
        "takes precedence.",
        wrong='provider anthropic { limits "claude-*" { concurrency 2 }; limits "claude-*" { concurrency 3 } }',
        right='provider anthropic { limits "claude-*" { concurrency 3 }; limits "claude-opus-*" { concurrency 2 } }',
    ),
    Page(
        "HM114",
        "`was` names something that still exists",
        "`was OLD` says that a declaration or an account had another name, so that a reload keeps its counters and "
        "learned values. The old name must no longer be declared, and only one declaration can have had it. To swap "
        "two names, change one after the other, with a reload in between.",
        wrong="lane chat { }\nlane talk was chat { }\nrule a when stream { lane talk }\nrule b { lane chat }\n"
        "provider anthropic { }",
        right="lane talk was chat { }\nrule a when stream { lane talk }\nprovider anthropic { }",
    ),
    Page(
        "HM115",
        "`shares` must name an account with limits of its own",
        "`shares NAME` says that a key belongs to the organisation of another account, whose windows, slots and "
        "circuit breaker then count for both. That account has them itself: it is not the one that shares, and "
        "shares none.",
        wrong="provider anthropic { account a { key env(A); shares a } }",
        right="provider anthropic { account a { key env(A) }; account b { key env(B); shares a } }",
    ),
    not_reported("HM190", "not yet in force", "The proxy acts on every setting of the language."),
)
