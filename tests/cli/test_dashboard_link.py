"""Links to the page, as they are opened from where the command runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hivemind_trio.cli.control import dashboard
from hivemind_trio.dashboard.page_address import PageAddress

LINK = "http://127.0.0.1:8788/dashboard/login?token=a_b-c"


@pytest.mark.parametrize(
    ("where", "url"),
    [
        ("/run/user/1000/hivemind-trio/team.sock", LINK),
        ("https://page.example", "https://page.example/dashboard/login?token=a_b-c"),
        ("http://10.0.0.7:9000/", "http://10.0.0.7:9000/dashboard/login?token=a_b-c"),
    ],
)
def test_a_link_is_at_the_url_by_which_the_proxy_was_asked(where: str, url: str) -> None:
    assert dashboard.opened_at(LINK, where) == url


@pytest.mark.parametrize(
    ("in_docker", "environment", "words"),
    [
        (False, {}, ""),
        (True, {}, 'admin "0.0.0.0:8788"'),
        (False, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, 'admin "0.0.0.0:8788"'),
        (False, {"SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"}, "ssh -L 8788:127.0.0.1:8788"),
    ],
)
def test_who_is_elsewhere_is_told_how_to_open_it(
    in_docker: bool, environment: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dockerenv"
    monkeypatch.setattr(dashboard, "CONTAINER_FILES", (file,))
    if in_docker:
        file.touch()
    advice = dashboard.away_advice(LINK, environment)

    assert words in advice
    assert bool(advice) is bool(words)


@pytest.mark.parametrize(
    ("listens", "url", "is_loopback"),
    [
        ("http://127.0.0.1:8788", "http://127.0.0.1:8788", True),
        ("http://[::1]:8788", "http://[::1]:8788", True),
        ("http://0.0.0.0:8788", "http://127.0.0.1:8788", False),
        ("http://[::]:8788", "http://[::1]:8788", False),
        ("http://10.0.0.7:8788", "http://10.0.0.7:8788", False),
    ],
)
async def test_a_browser_of_this_machine_can_open_the_url(listens: str, url: str, is_loopback: bool) -> None:
    async def never() -> str:
        raise AssertionError("it listens already")

    page = PageAddress(never, listens)

    assert (await page.url(), await page.is_loopback()) == (url, is_loopback)
