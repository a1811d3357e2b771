"""An editor: a real client of the language server over its standard input and output.

Sends what editors send, reads what comes, in order. A server that says nothing is killed, so that no test hangs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

PATIENCE_S: Final = 90
"""For one message."""


class Refused(Exception):  # noqa: N818 - it is what the server says, not a bug of it
    """The server answered a request with an error."""


class Editor:
    """One session."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._number = 0
        self._version = 0
        self.findings: dict[str, list[dict[str, Any]]] = {}
        """URI -> what the server said of it last."""
        self._news: list[str] = []
        self.published: list[str] = []
        """The URI of every publication, in order."""
        self.capabilities: dict[str, Any] = {}

    # ---- messages ----

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        watchdog = threading.Timer(PATIENCE_S, self._process.kill)
        watchdog.start()
        try:
            message = self._read(self._process.stdout)
        finally:
            watchdog.cancel()
        if message.get("method") == "textDocument/publishDiagnostics":
            self.findings[message["params"]["uri"]] = message["params"]["diagnostics"]
            self._news.append(message["params"]["uri"])
            self.published.append(message["params"]["uri"])
        return message

    @staticmethod
    def _read(stdout: IO[bytes]) -> dict[str, Any]:
        length = 0
        while (line := stdout.readline()) != b"\r\n":
            assert line, "the server hung up"
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        message: dict[str, Any] = json.loads(stdout.read(length))
        return message

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def request(self, method: str, params: Any) -> Any:
        """The result.

        Raises:
            Refused: With the server's words.
        """
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("id") == self._number and "method" not in message:
                if "error" in message:
                    raise Refused(message["error"]["message"])
                return message["result"]

    def found(self, uri: str) -> list[dict[str, Any]]:
        """The next findings of a document."""
        while uri not in self._news:
            self._receive()
        self._news.clear()
        return self.findings[uri]

    # ---- what a user does ----

    def open(self, path: Path, text: str | None = None) -> str:
        """Open a document, from the disk or with what has been typed since; its URI."""
        text = path.read_text(encoding="utf-8") if text is None else text
        document = {"uri": path.as_uri(), "languageId": "hmp", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})
        return path.as_uri()

    def type(self, uri: str, text: str) -> None:
        self._version += 1
        document = {"uri": uri, "version": self._version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def close(self, uri: str) -> None:
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def ask(self, what: str, uri: str, line: int, character: int, **more: Any) -> Any:
        """A request about a place."""
        place = {"line": line, "character": character}
        return self.request(f"textDocument/{what}", {"textDocument": {"uri": uri}, "position": place, **more})


@contextmanager
def editor(folder: Path, **general: Any) -> Iterator[Editor]:
    """An editor with a folder open, from its first message to the server's end, which must be a clean one."""
    command = [sys.executable, "-m", "hivemind_trio", "lsp"]
    errors = folder / "stderr.txt"
    with (
        errors.open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder) as process,
    ):
        try:
            session = Editor(process)
            answer = session.request(
                "initialize",
                {
                    "processId": None,
                    "rootUri": folder.as_uri(),
                    "workspaceFolders": [{"uri": folder.as_uri(), "name": folder.name}],
                    "capabilities": {"general": general},
                },
            )
            session.capabilities = answer["capabilities"]
            session.notify("initialized", {})
            yield session
            session.request("shutdown", None)
            session.notify("exit", None)
            assert process.wait(PATIENCE_S) == 0
            assert "Traceback" not in errors.read_text(encoding="utf-8")
        finally:
            process.kill()
