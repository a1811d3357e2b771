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
from hivemind_trio.model import Api, PlanSpan


class Type(Enum):
    """Type of a value. `language/values.py` reads each."""

    COUNT = auto()
    COUNT_OR_AUTO = auto()
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
    MONEY = auto()
    PARTITION = auto()
    PRICE = auto()
    WORD = auto()
    REF = auto()
    REFS = auto()
    NAME = auto()
    TEXT = auto()
    GLOB = auto()
    GLOBS = auto()
    SECRET = auto()
    SECRETS = auto()
    URL = auto()
    STORE_URL = auto()
    ADDRESS = auto()
    ADDRESS_OR_OFF = auto()
    CONTROL_ADDRESS = auto()
    HOSTS = auto()
    IP_ADDRESS = auto()
    NETWORKS = auto()
    TIMEZONE = auto()
    CLOCK = auto()
    DATE = auto()
    SIGNALS = auto()
    WORDS = auto()
    FLAG = auto()


SHOWN: Final[Mapping[Type, str]] = MappingProxyType(
    {
        Type.COUNT: "a count such as `40` or `2k`",
        Type.COUNT_OR_AUTO: "a count such as `4`, or `auto`",
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
        Type.MONEY: "money such as `$5`",
        Type.PARTITION: "`agent`, `team`, `model`, `provider`, `key`, `session`, `header.NAME` or `meta.NAME`",
        Type.PRICE: "a price such as `$3/Mtok`",
        Type.WORD: "a word",
        Type.REF: "a name",
        Type.REFS: "a name or a list of names",
        Type.NAME: "a name",
        Type.TEXT: 'a quoted text, `"..."`',
        Type.GLOB: 'a quoted glob, `"claude-*"`',
        Type.GLOBS: 'a list of globs, `["gpt-*"]`',
        Type.SECRET: '`env(NAME)` or `file("path")`',
        Type.SECRETS: '`env(NAME)` or `file("path")`, or a list of them',
        Type.URL: "a quoted URL, or `env(NAME)` that holds one",
        Type.STORE_URL: "a quoted URL that begins with `redis://` or `rediss://`, or `env(NAME)` that holds one",
        Type.ADDRESS: 'a quoted address, `"127.0.0.1:8787"`',
        Type.ADDRESS_OR_OFF: 'a quoted address, `"127.0.0.1:8787"`, or `off`',
        Type.CONTROL_ADDRESS: 'a quoted address, `"127.0.0.1:8788"`, `"unix:/path"`, or `off`',
        Type.HOSTS: 'a list of host names, `["llm.example.com"]`',
        Type.TIMEZONE: 'a quoted time zone, `"Europe/Paris"`',
        Type.CLOCK: "a time of day such as `22:30`",
        Type.DATE: 'a quoted date, `"2026-12-25"`',
        Type.SIGNALS: 'a list of statuses, failures and error types, `[429, 500..504, reset, "overloaded_error"]`',
        Type.IP_ADDRESS: 'an IP address, `"10.1.2.3"`',
        Type.NETWORKS: 'a list of addresses or networks, `["10.0.0.0/8"]`',
        Type.WORDS: "a list of words",
        Type.FLAG: "nothing",
    }
)


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


@final
@attrs.frozen
class Slot:
    """One value: an argument, or what follows an option."""

    type: Type
    words: tuple[str, ...] = ()
    """For WORD, WORDS and PARTITION: the choices. For REF and REFS: the kind of declaration that must exist."""
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
            return f"the name of {_a(self.words[0])}"
        if self.type is Type.REFS:
            return f"the name of {_a(self.words[0])}, or a list of them"
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
        "Order among calls of equal priority. All but `fair` compare the jobs of a whole team; agents without a team "
        "count as one."
    ),
    default="fair",
)

SERVER: Final[Mapping[str, Setting]] = {
    "listen": Setting(
        args=(_slot(Type.ADDRESS),),
        doc='Address for agents; `"[::]:8787"` takes IPv4, too. An address beyond loopback needs agents with tokens.',
        default='"127.0.0.1:8787"',
    ),
    "hosts": Setting(
        args=(_slot(Type.HOSTS),),
        doc="Names that callers may put into `Host`, globs allowed. IP addresses, names without a dot and names under "
        "`.localhost` or `.internal` need no entry; any other name is 421.",
    ),
    "forwarded-by": Setting(
        args=(_slot(Type.NETWORKS),),
        doc="Proxies in front of this one. Their `X-Forwarded-For` or `Forwarded` is believed for `client.address`: "
        "the last address there that is not in this list. Calls for which the two differ are 400.",
    ),
    "admin": Setting(
        args=(_slot(Type.CONTROL_ADDRESS, "off"),),
        options={"token": SECRETS},
        doc="Address of the control API, beside its Unix socket. Every request needs a `token`, on loopback too. "
        '`"unix:/path"` puts the socket there, where only this user may connect. With `off` there is no control API, '
        "and no socket either.",
    ),
    "metrics": Setting(
        args=(_slot(Type.ADDRESS_OR_OFF, "off"),),
        options={"token": SECRETS},
        doc="Address of `/metrics`, `/healthz` and `/readyz` alone, which change nothing. With a `token` every request "
        "needs it; beyond loopback there must be one. Where `admin` is `off`, too, nothing is counted.",
        default="off",
    ),
    "timezone": Setting(
        args=(_slot(Type.TIMEZONE),),
        doc="Time zone of `time`, `date`, `hour` and `weekday`. Default: the machine's.",
        default="",
    ),
    "drain": Setting(args=(DURATION,), doc="Time for calls in flight to finish after SIGTERM.", default="30s"),
    "nodes": Setting(args=(POSITIVE,), doc="Most proxies that share limits through `store redis`.", default="1"),
    "workers": Setting(
        args=(_slot(Type.COUNT_OR_AUTO, "auto", least=1),),
        doc="Processes of this host that serve together and share limits, as nodes do. `auto` is one for each core, at "
        "most 8.",
        default="1",
    ),
    "max-body": Setting(
        args=(_slot(Type.SIZE, least=1),), doc="Largest request body; a larger one gets 413.", default="32MiB"
    ),
    "max-header": Setting(
        args=(_slot(Type.SIZE, least=1),), doc="Largest request head; a larger one gets 431.", default="64KiB"
    ),
    "max-waiting": Setting(
        args=(POSITIVE,), doc="Most calls in all queues; further calls are rejected.", default="10k"
    ),
    "unknown-agent": Setting(
        args=(_slot(Type.WORD, "allow", "deny"),),
        doc="Treatment of callers that are no declared agent. Default: `allow` on loopback, else `deny`.",
    ),
    "identify": Setting(
        args=(_slot(Type.WORDS, *CLUES),),
        doc="Facts that tell callers apart, in order; a fact that is left out is not used. A token always comes first.",
        default="[url, header, session, user, connection]",
    ),
    "log": Setting(
        args=(_slot(Type.WORD, "text", "json"),), doc="Format of the log on standard error.", default="text"
    ),
    "wait": Setting(
        options={"silent": DURATION, "hold": DURATION},
        doc="`silent`: time before a queued stream gets its 200 and keep-alive events; `hold`: longest time in the "
        "queue after that.",
        default="silent 15s hold 240s",
    ),
}

STORE: Final[Mapping[str, Setting]] = {
    "path": Setting(
        args=(TEXT,),
        doc="The SQLite file; it gets mode 600, and its folder is created. Default: a folder for each policy in "
        "`$XDG_STATE_HOME/hivemind-trio`, or in `~/.local/state/hivemind-trio`.",
    ),
    "journal": Setting(
        args=(_slot(Type.WORD, "off", optional=True),),
        options={"keep": DURATION, "max": _slot(Type.SIZE, least=1)},
        doc="A row for each call, in `journal.db` beside the file of `path`. The oldest rows are deleted after `keep`, "
        "or above `max`.",
        default="keep 30d max 1GB",
    ),
    "url": Setting(args=(_slot(Type.STORE_URL),), doc="URL of Redis or Valkey. Required with `store redis`."),
    "namespace": Setting(args=(TEXT,), doc="Part of every key: proxies with the same one share.", default='"hivemind"'),
    "lease": Setting(
        args=(SOME_TIME,),
        options={"renew": SOME_TIME, "gone": SOME_TIME},
        doc="Time for which a node that is not heard keeps its share. It reports every `renew`, and counts as ended "
        "after `gone` without a connection.",
        default="60s renew 2s gone 10s",
    ),
    "outage": Setting(
        args=(_slot(Type.WORD, "local"), RATIO),
        doc="Share of every `concurrency` and rate limit that all nodes use together while the store is away.",
        default="local 25%",
    ),
}

STORE_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "memory": (),
    "sqlite": ("path", "journal"),
    "redis": ("path", "journal", "url", "namespace", "lease", "outage"),
}
"""Kind of store -> its settings."""

LIMITS: Final[Mapping[str, Setting]] = {
    "concurrency": Setting(args=(POSITIVE,), doc="Most attempts in flight for these models."),
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
        doc="Algorithm of the provider: token bucket, fixed window or sliding window. A `fixed` window is treated as "
        "`sliding` until an answer says when it ends. With `learn`, a whole window may be sent at once until the "
        "provider refuses a call; then calls are spread until answers show the algorithm.",
        default="learn",
    ),
}

_CONCURRENCY: Final = Setting(
    args=(_slot(Type.CONCURRENCY),),
    options={"start": POSITIVE},
    doc="Most attempts in flight. With two bounds the limit adapts (`aimd`), beginning at `start`, and grows only "
    "while throughput grows. Decreases end at the lower bound. Fewer go only while refusals show that the provider "
    "accepts fewer at once; one more is tried after 10 to 60 s. One number is a fixed limit.",
    default="2..64 start 8",
)
_LIMITS: Final = Setting(
    args=(_slot(Type.GLOB, optional=True),),
    block=LIMITS,
    repeated=True,
    doc="Limits of the models that match the glob, or of all. A model has the block with the most specific glob.",
)
_SPAN: Final = _slot(Type.WORD, *(span.value for span in PlanSpan))
_LANES: Final = _slot(Type.REFS, "lane")

PLAN: Final[Mapping[str, Setting]] = {
    "reserve": Setting(
        args=(_slot(Type.RATIO),),
        options={"of": _SPAN, "for": _LANES, "release": _slot(Type.WORD, "forecast", "never")},
        repeated=True,
        doc="The last part of a window, for calls of these lanes only. Reserves of one window add up. `of` and `for` "
        "are required. With `release forecast` it shrinks to what these lanes are expected to use until the reset; "
        "with `never` (the default) it stays.",
    ),
    "pace": Setting(
        args=(_SPAN,),
        options={"for": _LANES, "burst": _slot(Type.MULTIPLE, least=1)},
        repeated=True,
        doc="Calls of these lanes go while the used share of the window is no more than the elapsed one. What was left "
        "unused is caught up at `burst` times the even rate at most. `for` is required.",
        default="burst 4x",
    ),
    "overage": Setting(
        args=(_slot(Type.WORD, "allow", "warn", "deny"),),
        doc="Calls that would be paid beyond the plan: with `deny` they wait for the window to begin anew, with `warn` "
        "their answers have `x-hivemind-warning`.",
        default="warn",
    ),
}

ACCOUNT: Final[Mapping[str, Setting]] = {
    "key": Setting(args=(_slot(Type.SECRET),), doc="API key of the account. Required; never a personal login."),
    "for": Setting(args=(_LANES,), doc="Lanes whose calls may use it, before accounts of every lane. Default: all."),
    "shares": Setting(
        args=(_slot(Type.NAME),),
        doc="Another account of the provider, with a key of the same organisation: one set of windows, slots, circuit "
        "breaker and learned limit for both keys. Budgets `per key` count each by itself.",
    ),
    "concurrency": _CONCURRENCY,
    "limits": _LIMITS,
}

PROVIDER: Final[Mapping[str, Setting]] = {
    "api": Setting(
        args=(_slot(Type.WORD, *APIS),),
        doc=f"Dialect of its API. Not needed for the names {', '.join(_NAMES[:-1])} or {_NAMES[-1]}.",
    ),
    "base": Setting(
        args=(_slot(Type.URL),),
        doc="Base URL as the SDKs of its API take it: a version in it (`.../api/v1`) is not sent twice. "
        "Not needed for the same names.",
    ),
    "key": Setting(
        args=(_slot(Type.SECRET),),
        doc="API key sent in place of the agent's credential. Without it the agent's credential is forwarded.",
    ),
    "serves": Setting(args=(_slot(Type.GLOBS),), doc="Models that it serves. Default: every model of its API."),
    "account": Setting(
        args=(_slot(Type.NAME),),
        options={"was": _slot(Type.NAME)},
        block=ACCOUNT,
        repeated=True,
        doc="One of several API keys in place of `key`. Each has its own windows, learned limit and circuit breaker; "
        "`concurrency` and `limits` are those of the provider unless it has its own. A call uses an account that has "
        "room. `was OLD` keeps all that under a new name.",
    ),
    "spread": Setting(
        args=(_slot(Type.WORD, "sticky", "first", "even"),),
        doc="Order of the accounts that have room: `sticky` begins with that of the session, whose prompt cache is "
        "warm, then the least loaded; `first` is the order of the file; `even` the least loaded, of idle ones "
        "the one that was used longest ago.",
        default="sticky",
    ),
    "estimate": Setting(
        args=(_slot(Type.WORD, "learned", "tokenizer", "exact"),),
        doc="Input tokens of a call before it is sent: `learned` from its bytes and earlier answers; `tokenizer` "
        "counts with the tokenizer of OpenAI's models (extra `tokenizer`); `exact` asks the free endpoint of "
        "`anthropic` or `gemini` once for each beginning of a prompt, for at most 2 s. What cannot be counted is "
        "learned.",
        default="learned",
    ),
    "concurrency": _CONCURRENCY,
    "aimd": Setting(
        options={
            "increase": POSITIVE,
            "decrease": RATIO,
            "cooldown": DURATION,
            "slow": FLAG,
            "first-byte": DURATION,
        },
        doc=(
            "Adaptive concurrency between its bounds: the limit doubles until the first decrease, then grows by "
            "`increase` a round. An overload lowers it by `decrease` times the share of calls refused; a limit of the "
            "provider on concurrent calls is kept as found. `slow first-byte` counts a later first byte as a mild "
            "overload."
        ),
        default="increase 1 decrease 50% cooldown 5s",
    ),
    "limits": _LIMITS,
    "timeout": Setting(
        options={"connect": SOME_TIME, "first-byte": SOME_TIME, "idle": SOME_TIME, "total": SOME_TIME},
        doc=(
            "Bounds of one attempt. Those left out keep their default. "
            "`first-byte` ends with the first content event of a stream, or with the head of a plain answer."
        ),
        default="connect 5s first-byte 5m idle 5m total 30m",
    ),
    "retry": Setting(args=(_ref("retry"),), doc="Retry class of its calls that no rule gives one.", default="default"),
    "breaker": Setting(
        options={"trip": SOME_SHARE, "of": POSITIVE, "over": SOME_TIME, "open": SOME_TIME, "probes": POSITIVE},
        doc="Circuit breaker: it opens when the share `trip` of the latest `of` attempts failed, within `over`, or "
        "five in a row. An overload counts only if no attempt from before it is in flight. The pause between two "
        "probes is a sixth of the time that it has been open, at least 1s and at most `open`; `probes` successes close "
        "it.",
        default="trip 50% of 20 over 30s open 5s probes 1",
    ),
    "headers": Setting(
        args=(_slot(Type.WORD, "trust", "ignore"),),
        doc="Use of its rate-limit headers: remaining quota, and limits that are lower than those in `limits`.",
        default="trust",
    ),
    "queue": Setting(args=(COUNT,), doc="Most calls in its queue."),
    "fallback": Setting(
        args=(_ref("provider"),),
        doc="Provider of the same dialect that serves its calls while it is down, and those whose attempt it "
        "breaks off.",
    ),
    "resident": Setting(
        args=(POSITIVE,),
        options={"swap": DURATION},
        doc="Most models in memory: a call of another model waits until one of them is idle. `swap` is the time of a "
        "change, by default 20s; a call that loads its model may be silent for so long.",
    ),
    "objective": OBJECTIVE,
    "open": Setting(
        args=(_slot(Type.WORD, "hold", "fallback", "refuse"),),
        doc="Treatment of calls while the breaker is open. Default: `fallback` if there is one, else `hold`.",
        default="hold",
    ),
    "degraded": Setting(
        when=True,
        doc="Answers with status 200 that count as failures for the breaker. The condition reads their `status`, "
        "`model`, `stream`, `tokens.in`, `tokens.out` and `tokens.total`.",
    ),
    "plan": Setting(
        block=PLAN,
        doc="Use of the plans of callers' own accounts, as their provider reports it in windows of hours and days. "
        "Nothing waits before the first answer of an account.",
    ),
    "reaper": Setting(
        options={"first-byte": _slot(Type.MULTIPLE, least=1), "idle": _slot(Type.MULTIPLE, least=1)},
        doc="Limits after which an attempt counts as hung: multiples of the 99th percentile of the time to first byte "
        "and of the longest silence, for this model and request size. In force after twenty attempts; for streams "
        "from the first, with a larger multiple the fewer there were. At least 30s and 20s, at most `timeout`.",
        default="first-byte 4x idle 10x",
    ),
}

MODEL: Final[Mapping[str, Setting]] = {
    "price": Setting(
        options={name: _slot(Type.PRICE) for name in ("input", "output", "cache-read", "cache-write")},
        doc="Price of tokens. List prices can differ from your contract: check them.",
    ),
    "context": Setting(args=(POSITIVE,), doc="Context window, in tokens."),
    "max-output": Setting(args=(POSITIVE,), doc="Most output tokens."),
    "name": Setting(
        args=(TEXT,),
        doc="Name of these models at the provider; only with `on`. It replaces the model in requests to that "
        "provider, also as a fallback. Rules, budgets and prices use the name before.",
    ),
}

FAILURES: Final = ("connect", "reset", "first-byte", "timeout", "idle")
"""Failures that `retry ... on` may name beside statuses."""

RETRY: Final[Mapping[str, Setting]] = {
    "on": Setting(
        args=(_slot(Type.SIGNALS),),
        doc="Statuses and failures to retry, until the agent has got the first byte of the answer. A text is the type "
        "or code of the provider's error, exact: in the body of an error, or in the first event of a stream. An error "
        "event counts as its status as well: `529` covers `overloaded_error`.",
        default="[429, 500, 502..504, 520..524, 529, connect, reset, first-byte]",
    ),
    "attempts": Setting(
        args=(POSITIVE,),
        doc="Most attempts, the first included. Attempts that ended with 429 and probes are not counted; with `1` "
        "they are not retried either.",
        default="8",
    ),
    "backoff": Setting(
        args=(_slot(Type.BACKOFF),),
        options={"jitter": _slot(Type.WORD, "full", "equal", "none")},
        doc="Wait before the next attempt, doubled each time from the first bound to the second.",
        default="500ms..5s jitter full",
    ),
    "honor": Setting(
        args=(_slot(Type.WORD, "retry-after"),),
        options={"max": DURATION},
        doc="Longest `retry-after` of a provider that the call waits for, probing from 20s on; with a longer one "
        "the agent gets the answer.",
        default="retry-after max 10m",
    ),
    "ratio": Setting(
        args=(RATIO,),
        doc="Retries as a share of first attempts, at most. "
        "A stream that got its 200 while it waited is retried beyond that, after 40s at most.",
        default="20%",
    ),
}

LANE: Final[Mapping[str, Setting]] = {
    "weight": Setting(args=(POSITIVE,), doc="Share of the slots when lanes compete.", default="1"),
    "reserve": Setting(args=(_slot(Type.SHARE),), doc="Slots at each provider that only this lane may use."),
    "max": Setting(args=(_slot(Type.SHARE),), doc="Most slots at each provider."),
    "deadline": Setting(args=(DURATION,), doc="Longest time in the queue; then the call is rejected."),
    "queue": Setting(
        args=(COUNT,),
        options={"overflow": _slot(Type.WORD, "deny", "shed-oldest")},
        doc="Most calls in its queue; when it is full, the new call or the oldest is rejected.",
    ),
    "aging": Setting(
        args=(POSITIVE,),
        options={"every": SOME_TIME},
        doc="Priority that a call gains in the queue, for each `every`.",
    ),
    "priority": Setting(
        args=(_slot(Type.PRIORITY),),
        doc="Priority of its calls unless a rule or the agent sets it. Higher is dispatched first.",
        default="0",
    ),
    "objective": OBJECTIVE,
    "sticky": Setting(
        args=(_slot(Type.WORD, "key", "agent", "prefix"),),
        doc="Among calls of equal priority, prefers for 90 s those with the credential, the agent or the prompt prefix "
        "of the last one, for which the provider's prompt cache is warm.",
    ),
    "steal": Setting(
        options={"above": POSITIVE},
        doc="Number of other calls in the queue above which `sticky` no longer holds them back.",
        default="above 8",
    ),
}

TEAM: Final[Mapping[str, Setting]] = {
    "weight": Setting(args=(POSITIVE,), doc="Share of the lane when teams compete.", default="1"),
}

AGENT_LIMITS: Final[Mapping[str, Setting]] = {name: LIMITS[name] for name in ("requests", "input", "output", "tokens")}

AGENT: Final[Mapping[str, Setting]] = {
    "team": Setting(args=(_ref("team"),), doc="Team of the agent."),
    "token": Setting(
        args=(SECRETS,), doc="Credential that proves the agent. An agent with a token is identified by nothing else."
    ),
    "lane": Setting(args=(_ref("lane"),), doc="Lane of its calls unless a rule sets one."),
    "weight": Setting(
        args=(POSITIVE,), doc="Share within its team; without a team, share among the teams.", default="1"
    ),
    "concurrency": Setting(args=(POSITIVE,), doc="Most attempts in flight, over all providers."),
    "limits": Setting(
        block=AGENT_LIMITS,
        doc="Most that it starts over all providers, in windows that slide; further calls wait. A call counts once, "
        "whatever its retries; tokens count as its provider counts them.",
    ),
    "priority": Setting(
        args=(_slot(Type.PRIORITY),),
        options={"max": _slot(Type.PRIORITY)},
        doc="Priority of its calls unless a rule sets one; `max`: highest that it may ask for itself.",
    ),
    "queue": Setting(args=(COUNT,), doc="Most calls in the queue."),
}

BUDGET_ACTIONS: Final[Mapping[str, Setting]] = {
    "warn": Setting(doc="Adds the header `x-hivemind-budget-warning`."),
    "lane": Setting(args=(_ref("lane"),), doc="Moves calls to this lane."),
    "priority": Setting(args=(_slot(Type.PRIORITY),), doc="Sets this priority."),
    "model": Setting(args=(TEXT,), doc="Replaces the model."),
    "hold": Setting(doc="Holds calls until the window ends."),
    "deny": Setting(args=(_slot(Type.TEXT, optional=True),), doc="Rejects calls, with this message."),
}

PARTITIONS: Final = ("agent", "team", "model", "provider", "key", "session", "header.NAME", "meta.NAME")

BUDGET: Final[Mapping[str, Setting]] = {
    "cost": Setting(args=(_slot(Type.MONEY_ALLOWANCE),), doc="Money per window."),
    "tokens": Setting(args=(ALLOWANCE,), doc="Tokens per window."),
    "input": Setting(args=(ALLOWANCE,), doc="Input tokens per window."),
    "output": Setting(args=(ALLOWANCE,), doc="Output tokens per window."),
    "requests": Setting(args=(ALLOWANCE,), doc="Requests per window."),
    "at": Setting(
        args=(SOME_SHARE,), block=BUDGET_ACTIONS, repeated=True, doc="Actions from this share of the budget on."
    ),
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
    "lane": Setting(args=(_ref("lane"),), doc="Lane of the call."),
    "priority": Setting(args=(_slot(Type.PRIORITY),), doc="Priority in the lane. Higher is dispatched first."),
    "deadline": Setting(args=(DURATION,), doc="Longest time in the queue."),
    "retry": Setting(args=(_ref("retry"),), doc="Retry class."),
    "provider": Setting(args=(_ref("provider"),), doc="Provider of the call."),
    "model": Setting(
        args=(TEXT,), doc="Model that replaces the requested one upstream. Conditions read the requested one."
    ),
    "max-output": Setting(
        args=(POSITIVE,),
        doc="Output tokens that the call may ask for at most. A higher limit in the body is replaced, a missing one is "
        "added; `x-hivemind-rewrote` says so. One that must exceed a larger thinking budget is that budget plus one. "
        "Conditions read `tokens.max-out` as it was asked for.",
    ),
    "affinity": Setting(
        args=(_slot(Type.WORD, "model"),),
        options={"max": DURATION},
        doc="At a provider with `resident`: calls whose model is in memory pass this call until it has waited "
        "for `max`, "
        "by default 90s. Then its model is loaded as soon as a model in memory has no calls in flight.",
    ),
    "deny": Setting(args=(_slot(Type.TEXT, optional=True),), doc="Rejects the call, with this message."),
    "hold": Setting(
        args=(_slot(Type.TEXT, optional=True),),
        doc="Keeps the call waiting, without a slot, until no rule holds it; then it joins its lane with its age. It "
        "is decided again when a time, a date or a plan reading passes what a rule compares, and at a reload.",
    ),
    "allow": Setting(doc="Exempts the call from every `hold` and `deny` below."),
    "tag": Setting(args=(_slot(Type.NAME),), repeated=True, doc="A word for the log."),
    "warn": Setting(
        args=(_slot(Type.TEXT, optional=True),),
        repeated=True,
        doc="Words for the agent, in the header `x-hivemind-warning`.",
    ),
}

RESOURCE: Final[Mapping[str, Setting]] = {
    "capacity": Setting(args=(POSITIVE,), doc="Most leases at a time.", default="1"),
    "lease": Setting(
        args=(SOME_TIME,),
        options={"max": SOME_TIME},
        doc="Time for which a lease lasts without renewal; `max`: in all.",
        default="10m",
    ),
    "queue": Setting(args=(COUNT,), doc="Most waiting requests; further ones are refused.", default="100"),
    "allow": Setting(
        args=(_slot(Type.REFS, "agent"),),
        doc="Agents with a token that may ask for leases. Default: every agent whose calls are accepted.",
    ),
}

JOBS: Final[Mapping[str, Setting]] = {
    "allow": Setting(
        args=(_slot(Type.REFS, "agent"),),
        doc="Agents with a token that may submit, see and cancel jobs. Default: none, and nothing runs.",
    ),
    "commands": Setting(
        args=(_slot(Type.GLOBS),),
        doc="Commands that may run: globs over the arguments, joined by single spaces. There is no shell. Required.",
    ),
    "capacity": Setting(args=(POSITIVE,), doc="Most jobs that run at once.", default="4"),
    "queue": Setting(args=(COUNT,), doc="Most waiting jobs; further ones are refused.", default="1k"),
    "patience": Setting(args=(DURATION,), doc="No job starts while a call has waited longer than this.", default="60s"),
}

DECLARATIONS: Final[Mapping[str, Declaration]] = {
    "hmp": Declaration(naming=Naming.NOTHING, settings={}, doc="The language's version: `hmp 1`.", singular=False),
    "include": Declaration(naming=Naming.TEXT, settings={}, doc="More files, relative to this one."),
    "server": Declaration(naming=Naming.NOTHING, settings=SERVER, doc="The proxy itself.", singular=True),
    "store": Declaration(
        naming=Naming.WORD,
        words=("memory", "sqlite", "redis"),
        settings=STORE,
        doc="Storage of budgets, learned limits and the journal. By default they are in SQLite and survive a "
        "restart; with `store memory { }` they end with the process. With `store redis` several proxies share "
        "`concurrency`, rate limits and budgets; everything else is as with SQLite.",
        singular=True,
    ),
    "defaults": Declaration(
        naming=Naming.WORD,
        words=("provider", "agent", "lane", "budget"),
        settings={},
        doc="Default settings of all declarations of a kind.",
    ),
    "provider": Declaration(
        naming=Naming.NAME,
        extends=True,
        was=True,
        settings=PROVIDER,
        doc="An upstream API: its address, key and limits.",
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
        doc="A retry class. The one named `default` applies to calls without another.",
    ),
    "lane": Declaration(naming=Naming.NAME, was=True, settings=LANE, doc="A queue with its share of the slots."),
    "team": Declaration(
        naming=Naming.NAME,
        was=True,
        when=True,
        settings=TEAM,
        doc="A group of agents that share by weight. With `when`, also the calls that match, if their agent names no "
        "team; the first such team in the file wins.",
    ),
    "agent": Declaration(naming=Naming.NAME, extends=True, was=True, when=True, settings=AGENT, doc="A caller."),
    "budget": Declaration(
        naming=Naming.NAME,
        was=True,
        options={"per": _slot(Type.PARTITION, *PARTITIONS)},
        when=True,
        settings=BUDGET,
        doc="Spending limit for each window.",
    ),
    "rule": Declaration(
        naming=Naming.NAME, when=True, settings=RULE, doc="Treatment of the calls that match a condition."
    ),
    "resource": Declaration(
        naming=Naming.NAME,
        was=True,
        settings=RESOURCE,
        doc="Something else that agents share: a browser, a test database, a port. Agents lease it by its name "
        "(`hivemind-trio help leases`).",
    ),
    "jobs": Declaration(
        naming=Naming.NOTHING,
        settings=JOBS,
        doc="Commands that the proxy runs for agents, as `hivemind-trio run` does. Without it, nothing runs "
        "(`hivemind-trio help agent-tools`).",
        singular=True,
    ),
    "test": Declaration(naming=Naming.TEXT, settings={}, doc="Expectations that `check` verifies."),
}

DEFAULTED: Final = {"provider": PROVIDER, "agent": AGENT, "lane": LANE, "budget": BUDGET}

TEST_STATEMENTS: Final = ("given", "load", "upstream", "fault", "run")
