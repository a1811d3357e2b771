"""A coding agent as a closed loop: it asks, works on the answer, asks again, and dies of its first error.

That is the fleet of the HiveMind paper: no retry of its own, turns one after another, what it spent before it died is
wasted.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import final

import attrs

from hivemind_trio.model import RecordedCall
from hivemind_trio.sim.provider.latency_and_faults import Ask, Taken


@final
@attrs.frozen(kw_only=True)
class Turn:
    """One call of a job."""

    number: int
    """From 1."""
    think_ns: int
    """Time that the agent works before it asks: reading, running tools; before the first turn, starting up."""
    stream: bool
    prompt: str
    tokens_max_out: int
    tokens_in: int | None = None
    """None: as many as `prompt` comes to. In the virtual world a prompt may be a name, and as long as it likes."""
    tokens_out: int | None = None
    """Mean length of the answer; None: the provider's usual one."""
    conversation: str = ""
    prefix: str = ""
    """Beginning of its prompt that others share; empty: none."""
    prefix_tokens: int = 0
    """Input tokens of that beginning."""
    taken: Taken | None = None
    """Measurements of the same call in a recording; None: there are none."""
    recorded: RecordedCall | None = None
    """The call that it is made after."""
    ask: Ask = attrs.field(init=False, eq=False, repr=False)
    """Request as the provider reads it."""

    @property
    def tokens(self) -> int:
        """Input tokens."""
        return self.ask.tokens_in

    @ask.default
    def _make_ask(self) -> Ask:
        return Ask(
            key=self.prompt,
            tokens_in=tokens_of(self.prompt) if self.tokens_in is None else self.tokens_in,
            tokens_max_out=self.tokens_max_out,
            tokens_out=self.tokens_out,
            stream=self.stream,
            conversation=self.conversation,
            prefix=self.prefix,
            prefix_tokens=self.prefix_tokens,
            taken=self.taken,
            account="" if self.recorded is None else self.recorded.credential,
        )


@final
@attrs.frozen(kw_only=True)
class AgentJob:
    """Work of one agent."""

    agent: str
    turns: tuple[Turn, ...]

    @staticmethod
    def draw(
        agent: str,
        *,
        seed: int,
        turns: int,
        start_max_ns: int,
        think_ns: tuple[int, int],
        stream_every: int = 2,
        prompt_chars: int = 200,
        tokens_max_out: int = 1024,
    ) -> AgentJob:
        """Draw a job from a seed.

        Args:
            start_max_ns: The agent starts somewhere between 0 and this.
            think_ns: Bounds of the time between an answer and the next question.
            stream_every: Every so-manieth turn is streamed; 0: none.
        """
        chance = Random(f"{seed}/{agent}")  # noqa: S311 - a simulation wants to be repeatable, not secret
        drawn: list[Turn] = []
        for number in range(1, turns + 1):
            think = chance.randint(0, start_max_ns) if number == 1 else chance.randint(*think_ns)
            prompt = f"{agent}, turn {number}: read the failing test, find its cause, propose a patch. "
            drawn.append(
                Turn(
                    number=number,
                    think_ns=think,
                    stream=stream_every > 0 and number % stream_every == 0,
                    prompt=prompt.ljust(prompt_chars, "."),
                    tokens_max_out=tokens_max_out,
                )
            )
        return AgentJob(agent=agent, turns=tuple(drawn))


@attrs.define(eq=False)
class Agent:
    """A job under way."""

    job: AgentJob
    turns_done: int = attrs.field(init=False, default=0)
    tokens: int = attrs.field(init=False, default=0)
    """Input and output tokens that its turns have cost, the one it died in included as far as it got."""
    died_of: str | None = attrs.field(init=False, default=None)

    @property
    def dead(self) -> bool:
        """True if an error ended it."""
        return self.died_of is not None

    @property
    def done(self) -> bool:
        """True if it has finished all its turns."""
        return self.turns_done == len(self.job.turns)

    @property
    def tokens_wasted(self) -> int:
        """Tokens that it spent without finishing."""
        return self.tokens if self.dead else 0

    def turns(self) -> Iterator[Turn]:
        """Yield the turns still to do; ends early when the agent dies."""
        while not self.dead and not self.done:
            yield self.job.turns[self.turns_done]

    def succeeded(self, tokens: int) -> None:
        """Note that the current turn has ended well."""
        assert self.died_of is None, "a dead agent takes no turns"
        self.turns_done += 1
        self.tokens += tokens

    def failed(self, why: str, *, tokens: int = 0) -> None:
        """Note that the current turn has ended in an error, after `tokens` were spent on it."""
        assert not self.dead, "an agent dies once"
        self.died_of = why
        self.tokens += tokens


def tokens_of(text: str) -> int:
    """Return a usual estimate: four characters a token, ten at least, as in the paper's mock."""
    return max(10, len(text) // 4)
