"""`hivemind-trio setup`: files of clients in a home directory of the test's own."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hivemind_trio.cli.fleet.setup import NAMES
from hivemind_trio.cli.main import main
from hivemind_trio.clients import CLIENTS, EVERY_CLIENT, config_path
from hivemind_trio.jobs.adapters import ADAPTERS

WRITTEN = [name for name, client in CLIENTS.items() if client.files]
SOME = {
    ".json": '{\n  "model": "opus",\n  "env": {"KEEP": "1"},\n  "provider": {"x": {"n": 1.0}}\n}',
    ".toml": '# mine\nmodel = "m"\n\n[mcp_servers.a]\ncommand = "b"   # kept\n',
    ".env": "# mine\nGEMINI_API_KEY=secret\n",
    ".yml": "# mine\nmodel: m\n",
}

Setup = Callable[..., Result]


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    monkeypatch.setenv("HOME", f"{tmp_path / 'home'}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"{tmp_path / 'no-proxy'}")
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def invoke(*args: str) -> Result:
        return CliRunner().invoke(main, ["setup", *args], prog_name="hivemind-trio", catch_exceptions=False)

    return invoke


def place(name: str) -> Path:
    return config_path(CLIENTS[name].files[0], os.environ)


def some(name: str) -> str:
    path = place(name)
    return SOME[path.suffix or path.name]


def files_below(folder: Path) -> set[str]:
    return {f"{one.relative_to(folder)}" for one in folder.rglob("*") if one.is_file()}


def test_the_address_is_that_of_the_policy_if_no_proxy_runs(setup: Setup, tmp_path: Path) -> None:
    policy = tmp_path / "team.hmp"
    policy.write_text('hmp 1\nserver { listen "0.0.0.0:9191"; unknown-agent allow }\nprovider anthropic { }\n')
    found, bare = setup("generic", "--policy", f"{policy}"), setup("generic")
    policy.write_text("hmp 2\n")

    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:9191\n" in found.stdout
    assert f"no proxy of {policy} runs" in found.stderr
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:8787\n" in bare.stdout
    assert "no proxy runs" in bare.stderr
    assert "has errors" in setup("generic", "--policy", f"{policy}").stderr
    assert "no such file" in setup("generic", "--policy", f"{tmp_path / 'none.hmp'}").stderr
    assert setup("generic", "--policy", f"{policy}", "--url", "http://127.0.0.1:1").exit_code == 2


def test_the_command_knows_every_client_and_every_agent_of_run() -> None:
    assert set(NAMES) == set(CLIENTS)
    titles = " ".join(NAMES)
    assert all(one.name in titles for one in ADAPTERS if one.name != "mini-swe-agent")


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_is_restored_byte_by_byte(setup: Setup, name: str, tmp_path: Path) -> None:
    path = place(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(some(name))
    path.chmod(0o640)
    before = files_below(tmp_path)

    assert setup(name, "--write").exit_code == 0
    written = path.read_text()
    assert "http://127.0.0.1:8787" in written
    assert all(kept in written for kept in ("mine", "kept", "KEEP", "secret") if kept in some(name))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert setup(name, "--write", "--url", "http://127.0.0.1:9999").exit_code == 0
    assert "8787" not in path.read_text()

    assert setup(name, "--undo").exit_code == 0
    assert path.read_text() == some(name)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert files_below(tmp_path) == before
    assert setup(name, "--undo").exit_code == 2


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_that_was_not_there_is_gone_again(setup: Setup, name: str, tmp_path: Path) -> None:
    assert setup(name, "--write", "--agent", "lead").exit_code == 0
    assert "http://127.0.0.1:8787/@lead" in place(name).read_text()
    assert stat.S_IMODE(place(name).stat().st_mode) == 0o600
    assert "removed" in setup(name, "--undo").output
    assert files_below(tmp_path) == set()


def test_what_others_have_changed_since_stays(setup: Setup) -> None:
    path = place("claude-code")
    path.parent.mkdir(parents=True)
    path.write_text('{"env": {"ANTHROPIC_BASE_URL": "http://mine"}, "a": 1}')
    setup("claude-code", "--write")
    setup("claude-code", "--write", "--url", "http://127.0.0.1:9999")
    changed = json.loads(path.read_text())
    path.write_text(json.dumps({**changed, "model": "opus"}))

    assert "put back" in setup("claude-code", "--undo").output
    assert json.loads(path.read_text()) == {"env": {"ANTHROPIC_BASE_URL": "http://mine"}, "a": 1, "model": "opus"}


def test_what_others_have_added_to_a_new_file_stays(setup: Setup) -> None:
    setup("codex", "--write")
    path = place("codex")
    path.write_text(path.read_text() + 'model = "m"\n')
    setup("codex", "--undo")
    assert path.read_text() == 'model = "m"\n'


def test_a_setting_that_its_user_has_changed_since_is_not_touched(setup: Setup) -> None:
    setup("gemini", "--write")
    place("gemini").write_text("GOOGLE_GEMINI_BASE_URL=http://other\n")
    setup("gemini", "--undo")
    assert place("gemini").read_text() == "GOOGLE_GEMINI_BASE_URL=http://other\n"


def test_all_files_of_a_client_are_read_before_one_is_written(setup: Setup) -> None:
    settings = place("gemini").with_name("settings.json")
    settings.parent.mkdir(parents=True)
    settings.write_text("// mine")
    assert setup("gemini", "--write").exit_code == 2
    assert not place("gemini").exists()


def test_a_link_stays_a_link(setup: Setup, tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles.toml"
    dotfiles.write_text("x = 1\n")
    link = tmp_path / "home" / ".codex" / "config.toml"
    link.parent.mkdir(parents=True)
    link.symlink_to(dotfiles)
    setup("codex", "--write")
    assert link.is_symlink()
    assert "8787" in dotfiles.read_text()
    setup("codex", "--undo")
    assert link.is_symlink()
    assert dotfiles.read_text() == "x = 1\n"


def test_a_file_that_cannot_be_changed_is_left_alone(setup: Setup) -> None:
    path = place("claude-code")
    path.parent.mkdir(parents=True)
    path.write_text("{ // mine\n}")
    ended = setup("claude-code", "--write")
    assert ended.exit_code == 2
    assert "comments" in ended.output
    assert "by hand" in ended.output
    assert path.read_text() == "{ // mine\n}"
    assert setup("claude-code", "--undo").exit_code == 2


def test_a_folder_of_the_clients_own_is_heeded(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_HOME", f"{tmp_path / 'codex'}")
    setup("codex", "--write")
    assert (tmp_path / "codex" / "config.toml").exists()


@pytest.mark.parametrize("name", NAMES)
def test_each_client_is_shown(setup: Setup, name: str) -> None:
    ended = setup(name)
    client = CLIENTS[name]
    assert client.title in ended.output
    assert "{" + "url}" not in ended.output
    if name in ("cursor", "windsurf"):
        assert ended.exit_code == 1
        assert "own servers" in ended.output
    else:
        assert ended.exit_code == 0
        assert "http://127.0.0.1:8787" in ended.output


def test_the_variables_of_a_shell_are_lines_that_it_reads(setup: Setup) -> None:
    shown = setup("generic", "--url", "http://127.0.0.1:1/").output
    for name, value in EVERY_CLIENT.items():
        assert f"  export {name}={value.format(url='http://127.0.0.1:1')}\n" in shown


@pytest.mark.parametrize("name", ["cursor", "copilot", "generic"])
def test_a_client_without_a_file_is_not_written(setup: Setup, name: str, tmp_path: Path) -> None:
    assert setup(name, "--write").exit_code != 0
    assert files_below(tmp_path) == set()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--url", "127.0.0.1:8787"), "is no address"),
        (("--url", 'http://a"b'), "is no address"),
        (("--agent", "a b"), "is no name of an agent"),
        (("--write", "--undo"), "exclude"),
    ],
)
def test_wrong_usage_says_what_to_write(setup: Setup, args: tuple[str, ...], says: str) -> None:
    ended = setup("codex", *args)
    assert ended.exit_code == 2
    assert says in ended.output
