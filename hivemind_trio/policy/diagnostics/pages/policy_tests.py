"""Pages of the tests in a policy: HM501 to HM505."""

from __future__ import annotations

from typing import Final

from .page import Page

PAGES: Final = (
    Page(
        "HM501",
        "an expectation that fails",
        "The call of the test is decided by the policy as it is compiled, and what is expected is not so. The message "
        "says what the call got, and points at who decided that. Of a `given any` it also has the call, ready to be "
        "pasted as a test of its own; it was decided too, so it is really possible. A call that is denied has no lane, "
        "no priority and no provider: where calls may be denied, write `expect lane == batch or denied`.",
        wrong="rule night when hour in 22..23 { priority 6 }\nrule others { priority 2 }\nprovider anthropic { }\n"
        'test "nobody goes before others" {\n  given any when stream\n  expect priority == 2\n}',
        right="rule night when hour in 22..23 { priority 6 }\nrule others { priority 2 }\nprovider anthropic { }\n"
        'test "nobody goes before others by day" {\n  given any when hour in 7..21\n  expect priority == 2\n}',
    ),
    Page(
        "HM502",
        "a test that is ill-formed, or expects nothing",
        "A test is about calls (`given { ... }`, `given any when ...`) or about a run (`load NAME { ... }`), and "
        "expects something of them. One whose `given any` is met by no call that a provider serves cannot fail, which "
        "is a warning.",
        wrong='test "t" { given { hour 3 } }\nprovider anthropic { }',
        right='test "t" { given { hour 3 }; expect admitted }\nprovider anthropic { }',
    ),
    Page(
        "HM503",
        "a simulated expectation that fails",
        "The scheduler of the proxy ran in virtual time against a simulated provider, and what is expected of the run "
        "is not so. The message has the value, what was wanted, and the seed: the same seed is the same run on every "
        "machine. What the simulated provider is like is said by the policy's `limits` and `concurrency`, and by the "
        "test's `upstream`; `hivemind-trio simulate` shows more of a run.",
        wrong="provider anthropic { concurrency 1 }\n"
        'test "nobody waits" {\n  load work { model "claude-haiku-4-5"; arrive 60/min }\n'
        "  upstream anthropic { latency 2s..2s }\n  run 2m seed 1\n  expect work.wait.max < 1s\n}",
        right="provider anthropic { concurrency 8 }\n"
        'test "nobody waits" {\n  load work { model "claude-haiku-4-5"; arrive 60/min }\n'
        "  upstream anthropic { latency 2s..2s }\n  run 2m seed 1\n  expect work.wait.max < 1s\n}",
    ),
    Page(
        "HM504",
        "a test over its time",
        "A simulated test may take 30 s of the processor. A shorter `run`, or calls that `arrive` less often, say the "
        "same in less.",
    ),
    Page(
        "HM505",
        "waits of a load that was mostly rejected",
        "Waits are of calls that were served. Where more than 3% of a load's calls were rejected, or given up in the "
        "queue, a short wait says little: with a short `queue` or `deadline` it is short because the others are sent "
        "away. Say in the same test what part may be lost.",
        wrong="provider anthropic { concurrency 1 }\nlane default { queue 1 }\n"
        'test "short waits" {\n  load work { model "claude-haiku-4-5"; arrive 60/min }\n'
        "  upstream anthropic { latency 2s..2s }\n  run 2m seed 1\n  expect work.wait.p95 <= 10s\n}",
        right="provider anthropic { concurrency 1 }\nlane default { queue 1 }\n"
        'test "short waits" {\n  load work { model "claude-haiku-4-5"; arrive 60/min }\n'
        "  upstream anthropic { latency 2s..2s }\n  run 2m seed 1\n"
        "  expect work.wait.p95 <= 10s and work.denied <= 60%\n}",
    ),
)
