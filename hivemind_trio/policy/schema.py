"""The schema: every declaration and setting of the language, in one table.

The grammar knows shape only. What may stand where, with which arguments, units and references, and whether this version
obeys it, is here and nowhere else: the checker, the formatter's documents and the help texts are all read from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, final

import attrs

from hivemind_trio.dialects import KNOWN_BASES
from hivemind_trio.model import Api


class Type(Enum):
    """Type of a value. `language/values.py` reads each."""

    COUNT = auto()
    PRIORITY = auto()
    DURATION = auto()
    SIZE = auto()
    RATIO = auto()
    MULTIPLE = auto()
    SHARE = auto()
    CONCURRENCY = auto()
    BACKOFF = auto()
    COUNT_RATE = auto()
    COUNT_ALLOWANCE = auto()
    MONEY_ALLOWANCE = auto()
    PARTITION = auto()
    PRICE = auto()
    WORD = auto()
    REF = auto()
    NAME = auto()
    TEXT = auto()
    GLOB = auto()
    GLOBS = auto()
    SECRET = auto()
    SECRETS = auto()
    URL = auto()
    ADDRESS = auto()
    HOSTS = auto()
    TIMEZONE = auto()
    SIGNALS = auto()
    WORDS = auto()
    FLAG = auto()


SHOWN: Final[Mapping[Type, str]] = MappingProxyType(
    {
        Type.COUNT: "a count such as `40` or `2k`",
        Type.PRIORITY: "a priority, `0..100`",
        Type.DURATION: "a duration such as `30s`",
        Type.SIZE: "a size such as `32MiB`",
        Type.RATIO: "a ratio such as `50%`",
        Type.MULTIPLE: "a multiple such as `4x`",
        Type.SHARE: "slots, `4` or `25%`",
        Type.CONCURRENCY: "slots, `8` or `4..32`",
        Type.BACKOFF: "two durations, `500ms..20s`",
        Type.COUNT_RATE: "a rate such as `50/min`",
        Type.COUNT_ALLOWANCE: "an allowance such as `5M/day` or `90M/month`",
        Type.MONEY_ALLOWANCE: "an allowance of money such as `$25/day` or `$500/month`",
        Type.PARTITION: "`agent`, `team`, `model`, `provider`, `key`, `session`, `header.NAME` or `meta.NAME`",
        Type.PRICE: "a price such as `$3/Mtok`",
        Type.WORD: "a word",
        Type.REF: "a name",
        Type.NAME: "a name",
        Type.TEXT: 'a quoted text, `"..."`',
        Type.GLOB: 'a quoted glob, `"claude-*"`',
        Type.GLOBS: 'a list of globs, `["gpt-*"]`',
        Type.SECRET: '`env(NAME)` or `file("path")`',
        Type.SECRETS: '`env(NAME)` or `file("path")`, or a list of them',
        Type.URL: "a quoted URL, or `env(NAME)` that holds one",
        Type.ADDRESS: 'a quoted address, `"127.0.0.1:8787"`',
        Type.HOSTS: 'a list of host names, `["llm.example.com"]`',
        Type.TIMEZONE: 'a quoted time zone, `"Europe/Paris"`',
        Type.SIGNALS: "a list of statuses and failures, `[429, 500..504, reset]`",
        Type.WORDS: "a list of words",
        Type.FLAG: "nothing",
    }
)


@final
@attrs.frozen
class Slot:
    """One value: an argument, or what follows an option."""

    type: Type
    words: tuple[str, ...] = ()
    """For WORD, WORDS and PARTITION: the choices. For REF: the kind of declaration that must exist."""
    least: int = 0
    """Smallest COUNT or MULTIPLE: below it is HM205. Of anything else 1: nothing, such as `0s`, is HM205."""
    optional: bool = False

    def shown(self) -> str:
        """For people: what to write."""
        if self.type is Type.WORD:
            return " or ".join(f"`{word}`" for word in self.words)
        if self.type is Type.WORDS:
            return f"a list of {', '.join(f'`{word}`' for word in self.words)}"
        if self.type is Type.REF:
            return f"the name of a {self.words[0]}"
        return SHOWN[self.type]


@final
@attrs.frozen(kw_only=True)
class Setting:
    """`NAME ARGS [OPTION VALUE]... [{ block }]`."""

    args: tuple[Slot, ...] = ()
    options: Mapping[str, Slot] = attrs.field(factory=dict)
    when: bool = False
    """Takes `when EXPR`."""
    block: Mapping[str, Setting] | None = None
    repeated: bool = False
    required: bool = False
    doc: str
    default: str = ""
    """As it would be written; empty where there is none."""
    pending: bool = False
    """Known, and not yet in force (HM190)."""


class Naming(Enum):
    """Form of the name behind a declaration's keyword."""

    NOTHING = auto()
    NAME = auto()
    GLOB = auto()
    TEXT = auto()
    WORD = auto()


@final
@attrs.frozen(kw_only=True)
class Declaration:
    """A statement at the top of a file."""

    naming: Naming
    words: tuple[str, ...] = ()
    """With WORD: the choices."""
    options: Mapping[str, Slot] = attrs.field(factory=dict)
    extends: bool = False
    was: bool = False
    """Has a state that a rename can carry over: `was OLD`."""
    when: bool = False
    settings: Mapping[str, Setting]
    doc: str
    pending: bool = False
    singular: bool = False
    """At most one of it."""


LINKS: Final = ("extends", "was")
"""Words between a declaration's name and the rest, before another name; none is a name itself."""


def links(declaration: Declaration) -> tuple[str, ...]:
    """Those that this declaration takes."""
    return tuple(word for word in LINKS if getattr(declaration, word))


def _slot(type_: Type, *words: str, least: int = 0, optional: bool = False) -> Slot:
    return Slot(type_, words, least, optional)


COUNT = _slot(Type.COUNT)
POSITIVE = _slot(Type.COUNT, least=1)
DURATION = _slot(Type.DURATION)
SOME_TIME = _slot(Type.DURATION, least=1)
RATIO = _slot(Type.RATIO)
SOME_SHARE = _slot(Type.RATIO, least=1)
TEXT = _slot(Type.TEXT)
SECRETS = _slot(Type.SECRETS)
COUNT_RATE = _slot(Type.COUNT_RATE)
ALLOWANCE = _slot(Type.COUNT_ALLOWANCE)
SOME_RATE = _slot(Type.COUNT_RATE, least=1)
FLAG = _slot(Type.FLAG)


def _ref(kind: str) -> Slot:
    return _slot(Type.REF, kind)


CLUES: Final = ("url", "header", "session", "user", "client", "connection")
"""Clues of `identify`.

They are the `/@name` in the base URL, `x-hivemind-agent`, the session's headers, the body's user, the user-agent and
the connection.
"""

APIS: Final = tuple(api.value for api in Api)
_NAMES: Final = [f"`{api}`" for api in KNOWN_BASES]

OBJECTIVE = Setting(
    args=(_slot(Type.WORD, "fair", "makespan", "mean-completion", "latency"),),
    doc=(
        "What the order among calls of equal priority is for. All but `fair` compare the jobs of a whole team, and of "
        "all who have none."
    ),
    default="fair",
)

SERVER: Final[Mapping[str, Setting]] = {
    "listen": Setting(
        args=(_slot(Type.ADDRESS),),
        doc="Where agents reach the proxy. Anything but loopback needs agents with tokens.",
        default='"127.0.0.1:8787"',
    ),
    "hosts": Setting(
        args=(_slot(Type.HOSTS),),
        doc="Names that callers may put into `Host`, globs allowed. IP addresses, names without a dot and names under "
        "`.localhost` or `.internal` need no entry; any other name is 421.",
    ),
    "admin": Setting(args=(_slot(Type.ADDRESS),), doc="Where operators reach it.", pending=True),
    "timezone": Setting(
        args=(_slot(Type.TIMEZONE),), doc="For `hour` and `weekday`. Default: the machine's.", default=""
    ),
    "drain": Setting(args=(DURATION,), doc="How long calls in flight may finish after SIGTERM.", default="30s"),
    "nodes": Setting(args=(POSITIVE,), doc="Proxies that share the limits.", default="1", pending=True),
    "max-body": Setting(args=(_slot(Type.SIZE, least=1),), doc="Of a request; more is 413.", default="32MiB"),
    "max-header": Setting(args=(_slot(Type.SIZE, least=1),), doc="Of a request; more is 431.", default="64KiB"),
    "max-waiting": Setting(args=(POSITIVE,), doc="Calls waiting in all; more are refused.", default="10k"),
    "unknown-agent": Setting(
        args=(_slot(Type.WORD, "allow", "deny"),),
        doc="Whether callers that are no declared agent are served. Default: `allow` on loopback, else `deny`.",
    ),
    "identify": Setting(
        args=(_slot(Type.WORDS, *CLUES),),
        doc="What may tell callers apart, in order; what is left out is not believed. A token always comes first.",
        default="[url, header, session, user, connection]",
    ),
    "log": Setting(args=(_slot(Type.WORD, "text", "json"),), doc="The form of standard error.", default="text"),
    "wait": Setting(
        options={"silent": DURATION, "hold": DURATION},
        doc="How long a waiting call is sent nothing, and how long it is held after that.",
        default="silent 15s hold 240s",
    ),
}

STORE: Final[Mapping[str, Setting]] = {
    "path": Setting(
        args=(TEXT,),
        doc="Of the SQLite file, which has mode 600; its folder is made. Default: a folder for each policy in "
        "`$XDG_STATE_HOME/hivemind-trio`, or in `~/.local/state/hivemind-trio`.",
    ),
    "journal": Setting(
        args=(_slot(Type.WORD, "off", optional=True),),
        options={"keep": DURATION, "max": _slot(Type.SIZE, least=1)},
        doc="A row for each call, in `journal.db` beside the file of `path`. The oldest rows are deleted after `keep`, "
        "or above `max`.",
        default="keep 30d max 1GB",
    ),
    "url": Setting(args=(_slot(Type.URL),), doc="Of Redis."),
    "namespace": Setting(args=(TEXT,), doc="Before every key."),
    "lease": Setting(args=(DURATION,), options={"renew": DURATION}, doc="How long a node holds what it took."),
    "outage": Setting(
        args=(_slot(Type.WORD, "local", "refuse"), _slot(Type.RATIO, optional=True)),
        doc="What holds while the store is away.",
    ),
}

STORE_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "memory": (),
    "sqlite": ("path", "journal"),
    "redis": ("path", "journal", "url", "namespace", "lease", "outage"),
}
"""Kind of store -> its settings."""

LIMITS: Final[Mapping[str, Setting]] = {
    "concurrency": Setting(args=(POSITIVE,), doc="Attempts in flight for these models."),
    "requests": Setting(args=(SOME_RATE,), repeated=True, doc="Requests per window."),
    "input": Setting(args=(SOME_RATE,), repeated=True, doc="Input tokens per window."),
    "output": Setting(args=(SOME_RATE,), repeated=True, doc="Output tokens per window."),
    "tokens": Setting(args=(SOME_RATE,), repeated=True, doc="Tokens of both kinds per window."),
    "headroom": Setting(
        args=(RATIO,),
        doc="Share of each window left unused: by default 0%, and 2% once answers show that others use the key.",
        default="0%",
    ),
    "window": Setting(
        args=(_slot(Type.WORD, "learn", "bucket", "fixed", "sliding"),),
        doc="How the provider counts. `bucket` and `sliding` are spent as calls come; so is `fixed`, as if it were "
        "`sliding` until an answer has said when it ends. With `learn` all of it may go at once until the provider "
        "refuses a call for it; then calls are spread, until answers have shown which it is.",
        default="learn",
    ),
}

PROVIDER: Final[Mapping[str, Setting]] = {
    "api": Setting(
        args=(_slot(Type.WORD, *APIS),),
        doc=f"The dialect it speaks. Known by the name {', '.join(_NAMES[:-1])} or {_NAMES[-1]}.",
    ),
    "base": Setting(args=(_slot(Type.URL),), doc="Where it is. Known for the same names."),
    "key": Setting(
        args=(_slot(Type.SECRET),),
        doc="Put in the place of the agent's own credential, which passes through without it.",
    ),
    "serves": Setting(args=(_slot(Type.GLOBS),), doc="The models it is for; without it, every model of its API."),
    "concurrency": Setting(
        args=(_slot(Type.CONCURRENCY),),
        options={"start": POSITIVE},
        doc="Attempts in flight. Between two bounds it adapts, as `aimd` says; `start` is where it begins. Growth "
        "stops where throughput stops growing. One number is a fixed cap.",
        default="2..64 start 8",
    ),
    "aimd": Setting(
        options={
            "increase": POSITIVE,
            "decrease": RATIO,
            "cooldown": DURATION,
            "slow": FLAG,
            "first-byte": DURATION,
        },
        doc=(
            "How concurrency moves between its bounds. Until the first cut it doubles, then it grows by so much a "
            "round. A cap is kept as it is found; other overloads take up to such a share, the less the fewer calls "
            "are refused."
        ),
        default="increase 1 decrease 50% cooldown 5s",
    ),
    "limits": Setting(
        args=(_slot(Type.GLOB, optional=True),),
        block=LIMITS,
        repeated=True,
        doc="What holds for the models that match, or for all; the most specific block is a model's own.",
    ),
    "timeout": Setting(
        options={"connect": SOME_TIME, "first-byte": SOME_TIME, "idle": SOME_TIME, "total": SOME_TIME},
        doc=(
            "Bounds of one attempt. Those left out keep their default. "
            "`first-byte` ends with the first content event of a stream, or with the head of a plain answer."
        ),
        default="connect 5s first-byte 5m idle 5m total 30m",
    ),
    "retry": Setting(args=(_ref("retry"),), doc="The retry class of its calls, where no rule says.", default="default"),
    "breaker": Setting(
        options={"trip": SOME_SHARE, "of": POSITIVE, "over": SOME_TIME, "open": SOME_TIME, "probes": POSITIVE},
        doc="Circuit breaker: it opens when the share `trip` of the latest `of` attempts failed, within `over`, or "
        "five in a row. A pause between two probes is a sixth of the time since then, from 1s to `open`; `probes` "
        "successes close it.",
        default="trip 50% of 20 over 30s open 5s probes 1",
    ),
    "headers": Setting(
        args=(_slot(Type.WORD, "trust", "ignore"),),
        doc="Whether its rate-limit headers are believed: what they say is left, and limits lower than `limits` has.",
        default="trust",
    ),
    "queue": Setting(args=(COUNT,), doc="Calls waiting for it."),
    "fallback": Setting(
        args=(_ref("provider"),),
        doc="Another of the same dialect that takes its calls while it is down, and those that it breaks.",
    ),
    "resident": Setting(
        args=(POSITIVE,),
        options={"swap": DURATION},
        doc="Models in memory at once: a call of another one waits until one of them is idle. `swap` is how long a "
        "change takes, 20s if it is left out; for so long a call that loads its model may be silent.",
    ),
    "objective": OBJECTIVE,
    "open": Setting(
        args=(_slot(Type.WORD, "hold", "fallback", "refuse"),),
        doc="What calls do while the breaker is open. With a `fallback` they go there, unless this says otherwise.",
        default="hold",
    ),
    "degraded": Setting(
        when=True,
        doc="Answers that are 200 and count as failures for the breaker: of their `status`, `model`, `stream`, "
        "`tokens.in`, `tokens.out`, `tokens.total`.",
    ),
    "reaper": Setting(
        options={"first-byte": _slot(Type.MULTIPLE, least=1), "idle": _slot(Type.MULTIPLE, least=1)},
        doc="When an attempt is taken to hang: at so many times what 99 of 100 with this model, of this size, have "
        "needed to begin, or have been silent for. In force after twenty; for streams at once, with a multiple that is "
        "larger the fewer there were. At least 30s and 20s, at most `timeout`.",
        default="first-byte 4x idle 10x",
    ),
}

MODEL: Final[Mapping[str, Setting]] = {
    "price": Setting(
        options={name: _slot(Type.PRICE) for name in ("input", "output", "cache-read", "cache-write")},
        doc="What tokens cost. Data, not truth: check it against your contract.",
    ),
    "context": Setting(args=(POSITIVE,), doc="The window, in tokens."),
    "max-output": Setting(args=(POSITIVE,), doc="The most it puts out, in tokens."),
}

FAILURES: Final = ("connect", "reset", "first-byte", "timeout", "idle")
"""Failures that `retry ... on` may name beside statuses."""

RETRY: Final[Mapping[str, Setting]] = {
    "on": Setting(
        args=(_slot(Type.SIGNALS),),
        doc="What is tried again, as long as the agent has had nothing of the answer.",
        default="[429, 500, 502..504, 529, connect, reset, first-byte]",
    ),
    "attempts": Setting(
        args=(POSITIVE,),
        doc="In all, the first one included. Refusals for going too often (429) and probes do not count; "
        "with `1` they are not retried either.",
        default="8",
    ),
    "backoff": Setting(
        args=(_slot(Type.BACKOFF),),
        options={"jitter": _slot(Type.WORD, "full", "equal", "none")},
        doc="Before the next attempt, doubling from the first bound to the second.",
        default="500ms..5s jitter full",
    ),
    "honor": Setting(
        args=(_slot(Type.WORD, "retry-after"),),
        options={"max": DURATION},
        doc="A provider's `retry-after` up to this is kept, or probed after 20s; beyond it the agent gets the answer.",
        default="retry-after max 10m",
    ),
    "ratio": Setting(args=(RATIO,), doc="The most that retries may add to the load.", default="20%"),
}

LANE: Final[Mapping[str, Setting]] = {
    "weight": Setting(args=(POSITIVE,), doc="Its share where lanes compete.", default="1"),
    "reserve": Setting(args=(_slot(Type.SHARE),), doc="Slots of every provider that only this lane may take."),
    "max": Setting(args=(_slot(Type.SHARE),), doc="Slots of every provider that it may hold at most."),
    "deadline": Setting(args=(DURATION,), doc="How long a call may wait before it is refused."),
    "queue": Setting(
        args=(COUNT,),
        options={"overflow": _slot(Type.WORD, "deny", "shed-oldest")},
        doc="Calls waiting in it; when full, the new one or the oldest is refused.",
    ),
    "aging": Setting(
        args=(POSITIVE,),
        options={"every": SOME_TIME},
        doc="What waiting adds to a call's priority.",
    ),
    "priority": Setting(
        args=(_slot(Type.PRIORITY),), doc="Of its calls, where nothing else says. Higher goes first.", default="0"
    ),
    "objective": OBJECTIVE,
    "sticky": Setting(
        args=(_slot(Type.WORD, "key", "agent", "prefix"),),
        doc="Of calls of equal priority those go on that belong with the last one, for 90 s: of its credential, "
        "its agent, or its prompt's beginning, for which a provider's cache is warm.",
    ),
    "steal": Setting(
        options={"above": POSITIVE},
        doc="Where it is sticky: calls of others waiting, above which they may be next all the same.",
        default="above 8",
    ),
}

TEAM: Final[Mapping[str, Setting]] = {
    "weight": Setting(args=(POSITIVE,), doc="Its share where teams compete.", default="1"),
}

AGENT: Final[Mapping[str, Setting]] = {
    "team": Setting(args=(_ref("team"),), doc="Whose it is."),
    "token": Setting(
        args=(SECRETS,), doc="What it proves itself with; from then on nothing else makes a caller this agent."
    ),
    "lane": Setting(args=(_ref("lane"),), doc="Where its calls wait, where no rule says."),
    "weight": Setting(args=(POSITIVE,), doc="Its share within its team; without one, among the teams.", default="1"),
    "concurrency": Setting(args=(POSITIVE,), doc="Its attempts in flight, over all providers."),
    "priority": Setting(args=(_slot(Type.PRIORITY),), doc="Of its calls, where no rule says."),
    "queue": Setting(args=(COUNT,), doc="Its calls waiting."),
}

BUDGET_ACTIONS: Final[Mapping[str, Setting]] = {
    "warn": Setting(doc="Say so in a header."),
    "lane": Setting(args=(_ref("lane"),), doc="Wait there."),
    "priority": Setting(args=(_slot(Type.PRIORITY),), doc="Have this priority."),
    "model": Setting(args=(TEXT,), doc="Use this model instead."),
    "hold": Setting(doc="Wait for the window to turn."),
    "deny": Setting(args=(_slot(Type.TEXT, optional=True),), doc="Be refused."),
}

PARTITIONS: Final = ("agent", "team", "model", "provider", "key", "session", "header.NAME", "meta.NAME")

BUDGET: Final[Mapping[str, Setting]] = {
    "cost": Setting(args=(_slot(Type.MONEY_ALLOWANCE),), doc="Money per window."),
    "tokens": Setting(args=(ALLOWANCE,), doc="Tokens per window."),
    "input": Setting(args=(ALLOWANCE,), doc="Input tokens per window."),
    "output": Setting(args=(ALLOWANCE,), doc="Output tokens per window."),
    "requests": Setting(args=(ALLOWANCE,), doc="Requests per window."),
    "at": Setting(args=(SOME_SHARE,), block=BUDGET_ACTIONS, repeated=True, doc="What happens from this share on."),
    "window": Setting(
        args=(_slot(Type.WORD, "calendar", "sliding"),),
        doc="Begin of a window. Of the calendar: the hour, midnight, Monday (`/week`), the first (`/month`). Sliding: "
        "the time just past counts.",
        default="calendar",
    ),
    "timezone": Setting(
        args=(_slot(Type.TIMEZONE),),
        doc="Time zone of days, weeks and months. Days of 23 and 25 hours are days.",
        default="that of `server`",
    ),
}

RULE: Final[Mapping[str, Setting]] = {
    "lane": Setting(args=(_ref("lane"),), doc="Where the call waits."),
    "priority": Setting(args=(_slot(Type.PRIORITY),), doc="Higher goes first."),
    "deadline": Setting(args=(DURATION,), doc="How long it may wait."),
    "retry": Setting(args=(_ref("retry"),), doc="Its retry class."),
    "provider": Setting(args=(_ref("provider"),), doc="Where it goes."),
    "model": Setting(args=(TEXT,), doc="The model to send it with instead. Rules go by the one that was asked for."),
    "affinity": Setting(
        args=(_slot(Type.WORD, "model"),),
        options={"max": DURATION},
        doc="Where a provider has `resident`, let calls pass whose model is in memory, until this one has waited for "
        "`max`, 90s if it is left out: then its model comes in as soon as one in memory has finished its calls.",
    ),
    "deny": Setting(args=(_slot(Type.TEXT, optional=True),), doc="Refuse it, with these words."),
    "allow": Setting(doc="Exempt it from every `deny` below."),
    "tag": Setting(args=(_slot(Type.NAME),), repeated=True, doc="A word for the log."),
    "warn": Setting(
        args=(_slot(Type.TEXT, optional=True),),
        repeated=True,
        doc="Words for the agent, in the header `x-hivemind-warning`.",
    ),
}

RESOURCE: Final[Mapping[str, Setting]] = {
    "capacity": Setting(args=(POSITIVE,), doc="How many at once."),
    "lease": Setting(args=(DURATION,), doc="How long one may be held."),
    "queue": Setting(args=(COUNT,), doc="How many may wait."),
}

DECLARATIONS: Final[Mapping[str, Declaration]] = {
    "hmp": Declaration(naming=Naming.NOTHING, settings={}, doc="The language's version: `hmp 1`.", singular=False),
    "include": Declaration(naming=Naming.TEXT, settings={}, doc="More files, relative to this one."),
    "server": Declaration(naming=Naming.NOTHING, settings=SERVER, doc="The proxy itself.", singular=True),
    "store": Declaration(
        naming=Naming.WORD,
        words=("memory", "sqlite", "redis"),
        settings=STORE,
        doc="Where budgets, learned limits and the journal are kept. Without it they are in SQLite and survive a "
        "restart; with `store memory { }` they end with the process. `store redis` is not yet in force (HM190).",
        singular=True,
    ),
    "defaults": Declaration(
        naming=Naming.WORD,
        words=("provider", "agent", "lane", "budget"),
        settings={},
        doc="What declarations of a kind have unless they say otherwise.",
    ),
    "provider": Declaration(
        naming=Naming.NAME, extends=True, was=True, settings=PROVIDER, doc="An upstream, and our slots there."
    ),
    "model": Declaration(
        naming=Naming.GLOB,
        options={"on": _ref("provider")},
        settings=MODEL,
        doc="Prices and sizes of models, at every provider or at one. Each setting is that of the first that has it: "
        "declared `on` the provider, declared for every provider, list prices; among these the most specific glob.",
    ),
    "retry": Declaration(
        naming=Naming.NAME,
        was=True,
        settings=RETRY,
        doc="A retry class. One named `default` is that of every call that nothing else gives one.",
    ),
    "lane": Declaration(naming=Naming.NAME, was=True, settings=LANE, doc="A waiting line."),
    "team": Declaration(naming=Naming.NAME, was=True, settings=TEAM, doc="Agents that belong together."),
    "agent": Declaration(naming=Naming.NAME, extends=True, was=True, when=True, settings=AGENT, doc="A caller."),
    "budget": Declaration(
        naming=Naming.NAME,
        was=True,
        options={"per": _slot(Type.PARTITION, *PARTITIONS)},
        when=True,
        settings=BUDGET,
        doc="What we allow per window.",
    ),
    "rule": Declaration(naming=Naming.NAME, when=True, settings=RULE, doc="What calls are treated how."),
    "resource": Declaration(
        naming=Naming.NAME, settings=RESOURCE, doc="Something else to share: a sandbox, a database.", pending=True
    ),
    "test": Declaration(naming=Naming.TEXT, settings={}, doc="What must be so."),
}

DEFAULTED: Final = {"provider": PROVIDER, "agent": AGENT, "lane": LANE, "budget": BUDGET}

TEST_STATEMENTS: Final = ("given", "load", "upstream", "run")
