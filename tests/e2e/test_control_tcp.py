"""The control API at an address: tokens, web pages, and its OpenAPI document against the real server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import httpx2
import pytest
import schemathesis
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings

from hivemind_trio.cli.main import main
from hivemind_trio.control.openapi import document
from hivemind_trio.control.routes import OPERATION_PATHS
from tests.e2e.control import own_runtime
from tests.e2e.process import COMMAND, PATIENCE_S, environment

TOKEN: Final = "correct-horse-battery-staple"

POLICY: Final = """
hmp 1
server {{ listen "127.0.0.1:0"; admin "{address}" token [env(HIVEMIND_ADMIN_TOKEN), env(OLD_TOKEN)] }}
provider sim {{ api generic; base "http://127.0.0.1:9"; concurrency 1 }}
lane slow {{ }}
budget calls {{ requests 100/day }}
"""


@attrs.frozen
class Served:
    """A proxy in a process of its own, with its control API at an address."""

    url: str
    env: dict[str, str]
    lines: list[str]

    def ask(self, method: str = "GET", path: str = "/v1/status", **headers: str) -> httpx2.Response:
        with httpx2.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False) as client:
            return client.request(method, path, headers=headers)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("control") / "team.hmp"
    path.write_text(POLICY.format(address="127.0.0.1:0"))
    with own_runtime() as runtime:
        env = environment(**runtime, HIVEMIND_ADMIN_TOKEN=TOKEN, OLD_TOKEN="the old one")
        process = subprocess.Popen(
            [*COMMAND, "--policy", str(path), "--log-format", "json"], stderr=subprocess.PIPE, env=env, text=True
        )
        try:
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                if '"serving"' in line:
                    break
            url = next(
                said["socket"]
                for said in map(json.loads, lines)
                if said["event"] == "control_opened" and said["socket"].startswith("http")
            )
            yield Served(url, env, lines)
        finally:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()


def test_every_request_needs_a_token(served: Served) -> None:
    for headers in ({}, {"authorization": TOKEN}, {"authorization": "Bearer"}, {"authorization": f"Basic {TOKEN}"},
                    {"authorization": f"Bearer {TOKEN}x"}, {"authorization": f"Bearer {TOKEN[:-1]}"},
                    {"x-api-key": TOKEN}):  # fmt: skip
        for method, path in (("GET", "/v1/status"), ("GET", "/healthz"), ("POST", "/v1/reload"), ("GET", "/nothing")):
            answer = served.ask(method, path, **headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), (method, path, headers)
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert served.ask(path=f"/v1/status?token={TOKEN}").status_code == 401

    assert served.ask(authorization=f"Bearer {TOKEN}").json()["policy"]["path"].endswith("team.hmp")
    assert served.ask(authorization="bearer the old one").status_code == 200


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("host", "evil.example", 421),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
    ],
)
def test_web_pages_are_refused_though_they_have_the_token(served: Served, header: str, value: str, status: int) -> None:
    answer = served.ask(authorization=f"Bearer {TOKEN}", **{header: value})

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert "access-control-allow-origin" not in answer.headers


def test_no_answer_and_no_line_of_the_log_has_a_token(served: Served) -> None:
    answers = [
        served.ask(path=path, authorization=f"Bearer {TOKEN}")
        for path in ("/v1/status", "/v1/policy", "/v1/policy/diff", "/v1/openapi.json", "/v1/nothing")
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 404]
    assert TOKEN not in "".join([*(answer.text for answer in answers), *served.lines])


def test_a_reload_takes_other_tokens_into_force(served: Served) -> None:
    path = Path(served.ask(authorization=f"Bearer {TOKEN}").json()["policy"]["path"])
    before = path.read_text()

    def after(text: str) -> list[int]:
        path.write_text(text)
        assert served.ask("POST", "/v1/reload", authorization=f"Bearer {TOKEN}").status_code == 200
        return [served.ask(authorization=f"Bearer {token}").status_code for token in (TOKEN, "the old one")]

    assert after(before.replace(", env(OLD_TOKEN)]", "]")) == [200, 401]
    assert after(before) == [200, 200]


def test_the_commands_ask_at_an_address_with_the_token_of_the_environment(served: Served) -> None:
    def status(**more: str) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in {**served.env, **more}.items() if value}
        command = [sys.executable, "-m", "hivemind_trio", "status", "--json", "--socket", served.url]
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=False)

    assert json.loads(status().stdout)["cap"] == 1
    assert "needs the token" in status(HIVEMIND_ADMIN_TOKEN="wrong").stderr
    unset = status(HIVEMIND_ADMIN_TOKEN="")
    assert (unset.returncode, "HIVEMIND_ADMIN_TOKEN is not set" in unset.stderr) == (2, True)


def test_a_wrong_address_or_token_is_told_with_what_to_write(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    agents = next(said["address"] for said in map(json.loads, served.lines) if said["event"] == "serving")
    monkeypatch.setenv("HIVEMIND_ADMIN_TOKEN", "another")
    said = {
        where: CliRunner().invoke(main, ["status", "--socket", where]).stderr
        for where in (agents, served.url, served.url.removeprefix("http://"))
    }

    assert said[agents].startswith(f"hivemind-trio: {agents} is no control API: it answers with status ")
    assert "HIVEMIND_ADMIN_TOKEN has another token" in said[served.url]
    assert f"write {served.url} for an address" in said[served.url.removeprefix("http://")]


def test_an_address_without_a_token_does_not_start(tmp_path: Path) -> None:
    path = tmp_path / "team.hmp"
    path.write_text('hmp 1\nserver { admin "127.0.0.1:0" }\nprovider anthropic { }\n')
    ended = subprocess.run(
        [*COMMAND, "--policy", str(path)], capture_output=True, text=True, env=environment(), check=False, timeout=60
    )

    assert ended.returncode == 1
    assert "HM602" in ended.stderr


SCHEMA: Final = schemathesis.openapi.from_dict(document())


OTHER_PATHS: Final = (("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/metrics"), ("POST", "/v1/leases/hold"))


@pytest.mark.parametrize("name", [f"{method} {path}" for method, path in (*OPERATION_PATHS.values(), *OTHER_PATHS)])
def test_the_server_answers_as_its_document_says(served: Served, name: str) -> None:
    method, path = name.split()
    operation: Any = SCHEMA[path][method]

    @settings(max_examples=8 if "reload" in path or "diff" in path else 40, deadline=None, database=None,
              derandomize=True, suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=operation.as_strategy())
    def holds(case: Any) -> None:
        case.headers = {}  # of `If-Match` no value but the hash in force is right
        answer = case.call(base_url=served.url, headers={"authorization": f"Bearer {TOKEN}"})
        case.validate_response(answer)
        assert answer.status_code < 500

    holds()
