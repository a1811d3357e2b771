"""The `store` statement as the proxy uses it."""

from __future__ import annotations

import pytest

from hivemind_trio.policy import StoreSettings
from tests.support.policies import compiled

DAY_NS = 86_400 * 10**9


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", StoreSettings()),
        ("store sqlite { }", StoreSettings()),
        ("store memory { }", StoreSettings(durable=False, journal=False)),
        ("store sqlite { journal off }", StoreSettings(journal=False)),
        ("store sqlite { journal keep 7d }", StoreSettings(keep_ns=7 * DAY_NS)),
        ("store sqlite { journal max 50MB }", StoreSettings(max_bytes=50 * 10**6)),
        (
            'store sqlite { path "s.db"; journal keep 7d max 50MB }',
            StoreSettings(path="s.db", keep_ns=7 * DAY_NS, max_bytes=50 * 10**6),
        ),
    ],
)
def test_a_store_has_the_settings_that_it_says(text: str, settings: StoreSettings) -> None:
    assert compiled(f"{text}\nprovider anthropic {{ }}").store == settings
