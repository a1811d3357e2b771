"""Error bodies of the listener, for requests that the app does not see."""

from __future__ import annotations

import json

from hivemind_trio.model import Reason, rejection_text


def error_body(kind: str, reason: Reason, case: str = "", advice: str = "") -> bytes:
    """Return a body as Anthropic's and OpenAI's clients read it: the path, and so the API, is not known."""
    message = f"hivemind-trio: {rejection_text(reason, case)}{advice}"
    error = {"type": kind, "code": str(reason), "param": None, "message": message}
    return json.dumps({"type": "error", "error": error}).encode()
