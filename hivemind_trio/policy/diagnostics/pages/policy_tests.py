"""Pages of the tests in a policy: HM501 to HM505."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
    Page(
        "HM501",
        "failed expectation",
        "The compiled policy decides the call of the test, and the expectation does not hold. The message has what "
        "the call got, and marks the declaration that decided it. Of a `given any` it also has the call, ready to "
        "be pasted as a test of its own; that call is really possible. A denied call has no lane, no priority and "
        "no provider: if calls may be denied, write `expect lane == batch or denied`.",
        wrong="rule night when hour in 22..23 { priority 6 }\nrule others { priority 2 }\nprovider anthropic { }\n"
        'test "nobody goes before others" {\n  given any when stream\n  expect priority == 2\n}',
        right="rule night when hour in 22..23 { priority 6 }\nrule others { priority 2 }\nprovider anthropic { }\n"
        'test "nobody goes before others by day" {\n  given any when hour in 7..21\n  expect priority == 2\n}',
    ),
    Page(
        "HM502",
        "malformed test, or one without an expectation",
        "A test is about calls (`given { ... }`, `given any when ...`) or about a run (`load NAME { ... }`), and "
        "has an `expect`. A `given any` that matches no call of any provider cannot fail, which is a warning. `fault` "
        "is about one of several nodes or their store, so that its run needs `nodes`; it begins before the run ends.",
        wrong='test "t" { given { hour 3 } }\nprovider anthropic { }',
        right='test "t" { given { hour 3 }; expect admitted }\nprovider anthropic { }',
    ),
    Page(
        "HM503",
        "failed expectation of a simulation",
        "The scheduler of the proxy ran in virtual time against a simulated provider, and the expectation does not "
        "hold. The message has the value, the bound and the seed; the same seed gives the same run on every "
        "machine. The `limits` and `concurrency` of the policy and the `upstream` of the test describe the "
        "simulated provider. `hivemind-trio simulate` shows more of a run.",
        wrong="provider anthropic { concurrency 1 }\n"
        'test "nobody waits" {\n  load work { model "claude-haiku-4-5"; arrive 60/min }\n'
        "  upstream anthropic { latency 2s..2s }\n  run 2m seed 1\n  expect work.wait.max < 1s\n}",
        right="provider anthropic { concurrency 8 }\n"
        'test "nobody waits" {\n  load work { model "claude-haiku-4-5"; arrive 60/min }\n'
        "  upstream anthropic { latency 2s..2s }\n  run 2m seed 1\n  expect work.wait.max < 1s\n}",
    ),
    Page(
        "HM504",
        "test over its time limit",
        "A simulated test may use 30 s of CPU time. Shorten `run`, or let calls `arrive` less often.",
    ),
    Page(
        "HM505",
        "waits of a load that was mostly rejected",
        "Waits are of calls that were served. If more than 3% of the calls of a load were rejected, or given up in "
        "the queue, a short wait says little: with a short `queue` or `deadline` it is short because other calls "
        "are rejected. State in the same test which share may be lost.",
        wrong="provider anthropic { concurrency 1 }\nlane default { queue 1 }\n"
        'test "short waits" {\n  load work { model "claude-haiku-4-5"; arrive 60/min }\n'
        "  upstream anthropic { latency 2s..2s }\n  run 2m seed 1\n  expect work.wait.p95 <= 10s\n}",
        right="provider anthropic { concurrency 1 }\nlane default { queue 1 }\n"
        'test "short waits" {\n  load work { model "claude-haiku-4-5"; arrive 60/min }\n'
        "  upstream anthropic { latency 2s..2s }\n  run 2m seed 1\n"
        "  expect work.wait.p95 <= 10s and work.denied <= 60%\n}",
    ),
)
