"""Pages of declarations, settings and names: HM101 to HM190."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
    Page(
        "HM101",
        "an unknown declaration",
        "At the top of a file stand the declarations: `server`, `provider`, `lane`, `agent`, `rule` and the "
        "others of the reference.",
        wrong="provder anthropic { }",
        right="provider anthropic { }",
    ),
    Page(
        "HM102",
        "an unknown setting",
        "This declaration has no such setting. Where another has, the help names it.",
        wrong="provider anthropic { concurency 4 }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM103",
        "not allowed here",
        "A statement, a `when` or a block where it means nothing.",
        wrong="provider anthropic when stream { concurrency 4 }",
        right="provider anthropic { concurrency 4 }",
    ),
    Page(
        "HM104",
        "declared twice",
        "Kind and name are a thing's identity, over all included files: there is no overriding by order. To vary "
        "one, use `extends`.",
        wrong="team a { }\nteam a { }\nagent x { team a }\nprovider anthropic { }",
        right="team a { }\nteam b { }\nagent x { team a }\nagent y { team b }\nprovider anthropic { }",
    ),
    Page(
        "HM105",
        "set twice",
        "Nothing says which of the two was meant.",
        wrong="provider anthropic { concurrency 4; concurrency 8 }",
        right="provider anthropic { concurrency 8 }",
    ),
    Page(
        "HM106",
        "a required setting is missing",
        "There is no default that would be right: a provider of a name that is not well known must say what it "
        "speaks and where it is.",
        wrong="provider lab { concurrency 4 }",
        right='provider lab { api vllm; base "http://127.0.0.1:8000"; concurrency 4 }',
    ),
    Page(
        "HM107",
        "a name that nobody declares",
        "A reference to a lane, team, provider or retry class that is nowhere in the file or what it includes. The "
        "lane and the retry class `default` need not be declared.",
        wrong="lane batch { }\nrule ci { lane bach }\nprovider anthropic { }",
        right="lane batch { }\nrule ci { lane batch }\nprovider anthropic { }",
    ),
    Page(
        "HM108",
        "extends itself",
        "The note shows the circle.",
        wrong="provider anthropic extends openai { }\nprovider openai extends anthropic { }",
        right="provider anthropic { concurrency 4 }\nprovider openai { concurrency 4 }",
    ),
    Page(
        "HM109",
        "extends something of another kind",
        "A provider extends a provider, an agent an agent.",
        wrong="lane fast { }\nprovider anthropic extends fast { }",
        right="defaults provider { concurrency 4 }\nprovider anthropic { }",
    ),
    Page(
        "HM110",
        "a `let` defined through itself",
        "The note shows the circle.",
        wrong="let a = b\nlet b = a\nprovider anthropic { }",
        right='let a = ["claude-*"]\nrule r when model ~ a { priority 2 }\nprovider anthropic { }',
    ),
    Page(
        "HM111",
        "a reserved name",
        "`unknown` is the agent that nobody declared and `none` the team of those without one; fields of "
        "expressions cannot be hidden by a `let`.",
        wrong="agent unknown { }\nprovider anthropic { }",
        right="agent visitor { }\nprovider anthropic { }",
    ),
    Page(
        "HM112",
        "a missing or unknown argument",
        "Values come first, then pairs of option and value, then the block. The help lists what there is.",
        wrong="provider anthropic { timeout 5s }",
        right="provider anthropic { timeout connect 5s }",
    ),
    Page(
        "HM113",
        "two that are equally specific",
        "Two `limits` blocks or two `model` declarations for the same glob: for a model that matches both, "
        "neither is the more specific.",
        wrong='provider anthropic { limits "claude-*" { concurrency 2 }; limits "claude-*" { concurrency 3 } }',
        right='provider anthropic { limits "claude-*" { concurrency 3 }; limits "claude-opus-*" { concurrency 2 } }',
    ),
    Page(
        "HM114",
        "a rename of what is still there",
        "`was OLD` says that something is what ran under another name, so that a reload keeps what was counted and "
        "learned of it. That can be so if the old name is no longer declared, and of one thing only. Where names "
        "change places, change them one after the other, with a reload in between.",
        wrong="lane chat { }\nlane talk was chat { }\nrule a when stream { lane talk }\nrule b { lane chat }\n"
        "provider anthropic { }",
        right="lane talk was chat { }\nrule a when stream { lane talk }\nprovider anthropic { }",
    ),
    Page(
        "HM190",
        "known, and not yet in force",
        "The language has this setting, and this version of the proxy does not act on it. A policy that relies on "
        "it would be weaker than it looks, so it is said by `check` and at the start of `serve`. Delete it, or "
        "allow it with `# hmp: allow HM190 reason` on the line above.",
        wrong="resource sandbox { capacity 4 }\nprovider anthropic { }",
        right="provider anthropic { }",
    ),
)
