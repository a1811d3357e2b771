"""Claude Code itself asks for a forecast, over stdio and at `/mcp`; skipped where it is not installed.

npm install --prefix DIR @anthropic-ai/claude-code
PATH=DIR/node_modules/.bin:$PATH pytest tests/e2e/test_mcp_claude.py
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio

from hivemind_trio.listen import Listener, Receive, Scope, Send, bind
from tests.e2e.control import own_runtime
from tests.e2e.process import environment, serving
from tests.e2e.test_setup_clients import scratch

TOOL: Final = "mcp__hivemind__forecast"
PATIENCE_S: Final = 90

POLICY: Final = """
hmp 1
provider sim {{ api anthropic; base "{url}"; key env(KEY); concurrency 4 }}
agent lead {{ }}
"""


@attrs.define(eq=False)
class ToolUser:
    """A provider whose model calls the tool when it is offered, and repeats what it says."""

    tools: dict[str, Any] = attrs.field(factory=dict)
    """As the client offered it."""
    told: list[Any] = attrs.field(factory=list)
    """Results of the tool."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        asked = json.loads(body or b"{}")
        self.tools |= {one["name"]: one for one in asked.get("tools", []) if one.get("name") == TOOL}
        results = [
            part
            for message in asked.get("messages", [])
            for part in (message["content"] if isinstance(message["content"], list) else [])
            if part.get("type") == "tool_result"
        ]
        self.told += results
        offered = any(one.get("name") == TOOL for one in asked.get("tools", []))
        block: dict[str, Any] = {"type": "text", "text": "done"}
        if offered and not results:
            block = {"type": "tool_use", "id": "toolu_1", "name": TOOL, "input": {"agents": 8, "within_s": 0}}
        events = list(stream(asked.get("model", "m"), block))
        data = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()
        headers = [(b"content-type", b"text/event-stream"), (b"content-length", b"%d" % len(data))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": data})


def stream(model: str, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of an answer with one block."""
    usage = {"input_tokens": 50, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}
    if block["type"] == "text":
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        delta = {"type": "text_delta", "text": block["text"]}
    else:
        yield {"type": "content_block_start", "index": 0, "content_block": block | {"input": {}}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = "end_turn" if block["type"] == "text" else "tool_use"
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


@asynccontextmanager
async def tool_user() -> AsyncIterator[tuple[ToolUser, str]]:
    """The provider, and its URL."""
    sockets = bind("127.0.0.1", 0)
    provider = ToolUser()
    async with trio.open_nursery() as nursery:
        await nursery.start(Listener(provider).run, sockets)
        yield provider, f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_claude_code_asks_how_many_agents_fit(way: str, tmp_path: Path) -> None:
    claude = shutil.which("claude")
    if claude is None:
        pytest.skip("claude is not installed")
    home = scratch(tmp_path / "home")
    with own_runtime() as runtime:
        async with tool_user() as (provider, url):
            path = tmp_path / "team.hmp"
            path.write_text(POLICY.format(url=url))
            async with serving("--policy", path, env=runtime | {"KEY": "sk-1"}) as proxy:
                await proxy.says("control_opened")
                command = {"command": sys.executable, "args": ["-m", "hivemind_trio", "mcp"]}
                own = environment(**runtime, ANTHROPIC_BASE_URL=f"{proxy.url}/@lead")
                there = {"type": "http", "url": f"{proxy.url}/@lead/mcp"}
                config = {"mcpServers": {"hivemind": command | {"env": own} if way == "stdio" else there}}
                at_start = {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_TIMEOUT": "60000"}
                base_url = {"ANTHROPIC_BASE_URL": f"{proxy.url}/@lead"}
                with trio.fail_after(PATIENCE_S):
                    ended = await trio.run_process(
                        [
                            claude, "-p", "How many agents fit?", "--output-format", "json", "--strict-mcp-config",
                            "--mcp-config", json.dumps(config), "--allowedTools", TOOL,
                        ],
                        env=home | runtime | at_start | base_url,
                        cwd=tmp_path,
                        stdin=b"",
                        capture_stdout=True,
                        capture_stderr=True,
                        check=False,
                    )  # fmt: skip

    assert ended.returncode == 0, (ended.stdout[-2_000:], ended.stderr[-2_000:])
    assert json.loads(ended.stdout)["result"] == "done"
    assert provider.tools[TOOL]["input_schema"]["properties"]["agents"]["type"] == "integer"
    said = json.dumps(provider.told[0])
    assert "4 of 8 fit now" in said, said
