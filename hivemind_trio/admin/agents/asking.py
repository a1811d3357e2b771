"""An agent that asks about itself, and the call that it would make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, assert_never, final
from zoneinfo import ZoneInfo

import attrs

from hivemind_trio.admin.operated import Operated
from hivemind_trio.dialects import DIALECTS
from hivemind_trio.model import Api, Request
from hivemind_trio.model.addresses import LOOPBACK
from hivemind_trio.policy import UNKNOWN_AGENT, Program
from hivemind_trio.proxy import Asker, CallRecord, Whose
from hivemind_trio.scheduler import Call, CallId
from hivemind_trio.wire import endpoint

TOKENS_IN: Final = 8_000
TOKENS_OUT: Final = 1_000
"""Tokens of a call without an example."""


@final
@attrs.frozen(kw_only=True)
class AskingAgent:
    """An agent by what it says or proves of itself."""

    name: str = ""
    """As the base URL or a header would name it; empty: it says nothing."""
    token_agent: str | None = None
    """Declared agent whose token it has shown."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    caller: str = ""
    """Name as the proxy gives it where nothing is declared; empty: that of its calls is not known."""
    credential: str = ""
    address: str = "127.0.0.1"
    """Address that its calls are counted by; who asks at the control socket is on this machine."""
    client_address: int = LOOPBACK
    """The same as conditions read it."""
    session: str = ""
    """Session of its client, where it has no name; empty: not known."""
    is_at_control: bool = False
    """True if it asks at the control socket, where the plans of all logins are shown."""

    @classmethod
    def named(cls, name: str, session: str, program: Program) -> AskingAgent:
        """Return the agent of this name, the declared one or a caller that calls itself so; or else of this session."""
        settings = program.agents.get(name)
        proven = name if settings is not None and settings.tokens else None
        session = "" if name else session[:64]
        caller = f"{name}@-" if name else f"{session}/@-" if session else ""
        return cls(name=name, token_agent=proven, caller=caller, session=session, is_at_control=True)

    @classmethod
    def of(cls, key: Whose) -> AskingAgent:
        """Return the agent whose own priority is kept under this key."""
        kind, name = key
        match kind:
            case "token":
                return cls(name=name, token_agent=name)
            case "name":
                return cls(name=name)
            case "session":
                return cls(session=name)
            case _:
                assert_never(kind)

    @classmethod
    def at_the_door(cls, asker: Asker) -> AskingAgent:
        """Return the agent that asks at the agents' listener."""
        headers = {name: text for name, text in asker.headers.items() if not name.startswith("mcp-")}
        return cls(
            name=asker.name,
            token_agent=asker.token_agent,
            headers=headers,
            caller=asker.caller,
            credential=asker.credential,
            address=asker.address,
            client_address=asker.client_address,
        )

    def is_of(self, agent: str, caller: str) -> bool:
        """Return True if a call is the agent's own.

        Args:
            agent: Declared agent of the call, or `unknown`.
            caller: Of the call.
        """
        if agent != UNKNOWN_AGENT:
            return agent in (self.token_agent, self.name)
        if self.session and caller.startswith(f"{self.session}/"):
            return True
        return bool(self.name and caller.startswith(f"{self.name}@")) or (caller == self.caller and bool(caller))

    def records(self, proxy: Operated) -> list[CallRecord]:
        """Return its calls that ended lately and were served, the oldest first."""
        return [
            one.record
            for one in proxy.tally.recent
            if is_served(one.record) and self.is_of(one.record.agent, one.record.caller)
        ]


@final
@attrs.frozen(kw_only=True)
class CallShape:
    """Shape of a call; 0 and empty: as the agent's calls were lately."""

    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0


def likely_call(proxy: Operated, agent: AskingAgent, shape: CallShape) -> tuple[Call, int]:
    """Return a call as the agent would make it next, and the tokens of its answer."""
    program, own = proxy.engine.program, agent.records(proxy)
    seen = own or [one.record for one in proxy.tally.recent if is_served(one.record)]
    alike = [record for record in seen if record.model == shape.model] or seen
    model, path = shape.model, alike[-1].path if alike else ""
    if not model and alike:
        model = alike[-1].model
    apis = endpoint(path, {}).apis if path else ()
    if not apis or program.route(apis, model) is None:
        api, model = _usual(proxy, model)
        apis, path = (api,), DIALECTS[api].usual_path
    usages = [record.usage for record in alike if record.usage is not None and record.usage.total]
    tokens_in = shape.tokens_in or _mean([one.total - one.output for one in usages]) or TOKENS_IN
    tokens_out = shape.tokens_out or _mean([one.output for one in usages]) or TOKENS_OUT
    zone = ZoneInfo(program.server.timezone) if program.server.timezone else None
    now = datetime.fromtimestamp(proxy.wall_ns() / 1e9, UTC).astimezone(zone)
    request = Request(
        apis=apis,
        token_agent=agent.token_agent,
        claimed=agent.name or None,
        model=model,
        path=path,
        stream=True,
        tools=True,
        tokens_in=tokens_in,
        cost_microusd=program.estimated_cost(apis, model, tokens_in, tokens_out),
        hour=now.hour,
        minute=now.minute,
        second=now.second,
        weekday=now.isoweekday(),
        date=now.date().isoformat(),
        headers=agent.headers,
        client_address=agent.client_address,
    )
    caller = own[-1].caller if own else agent.caller
    call = Call(
        id=CallId(0), request=request, caller=caller, credential=agent.credential, address=agent.address, job="forecast"
    )
    return call, tokens_out


def _usual(proxy: Operated, model: str) -> tuple[Api, str]:
    """Return the dialect and the model of a call of which little is known."""
    apis = [provider.api for provider in proxy.engine.program.providers.values()]
    family = model.partition("-")[0]
    api = next((api for api in apis if DIALECTS[api].usual_model.partition("-")[0] == family), apis[0])
    return api, model or DIALECTS[api].usual_model


def _mean(numbers: Iterable[int]) -> int:
    values = list(numbers)
    return round(sum(values) / len(values)) if values else 0


def is_served(record: CallRecord) -> bool:
    """Return True if a provider has answered the call well."""
    return not record.rejected and record.provider is not None and 200 <= record.status < 300 and record.attempts > 0
