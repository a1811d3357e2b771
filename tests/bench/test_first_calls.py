"""Only what a model sees of a body is counted, and each text as it sees it."""

from __future__ import annotations

from bench.first_calls import prompt_texts


def test_texts_of_messages_and_tools_are_counted_and_ids_are_not() -> None:
    body = {
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "a\nb"}]},
            {"type": "additional_tools", "tools": [{"name": "exec", "strict": True}], "x_passthrough": {"turn": "no"}},
        ],
    }

    assert list(prompt_texts(body)) == ["Be brief.", "a\nb", "[{name:exec,strict:true}]"]
