"""Clients as data: the file or the variables that hold a base URL. `{url}` stands for the proxy's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

from .config_text import ConfigFormat

EVERY_CLIENT: Final[Mapping[str, str]] = {
    "ANTHROPIC_BASE_URL": "{url}",
    "OPENAI_BASE_URL": "{url}/v1",
    "OPENAI_API_BASE": "{url}/v1",
    "GOOGLE_GEMINI_BASE_URL": "{url}",
}
"""Variables that SDKs and agents read their base URL from; LiteLLM and aider read `OPENAI_API_BASE`."""


@final
@attrs.frozen(kw_only=True)
class ConfigFile:
    """A file of a client's user, and the settings in it."""

    folder: str
    """Below the home directory."""
    name: str
    format: ConfigFormat
    settings: Mapping[tuple[str, ...], str]
    """Path of each setting, from the outermost name, and its value."""
    moved_by: str = ""
    """Variable that names another folder; empty: none does."""
    below_moved: str = ""
    """Folder below that of the variable."""


@final
@attrs.frozen(kw_only=True)
class Client:
    """One client. Without files and variables it cannot use a local proxy."""

    name: str
    title: str
    files: tuple[ConfigFile, ...] = ()
    variables: Mapping[str, str] = attrs.field(factory=dict)
    """For one shell; empty: it reads none."""
    notes: tuple[str, ...] = ()

    @property
    def can_use_a_proxy(self) -> bool:
        """True if its calls can go through a proxy on this machine."""
        return bool(self.files or self.variables)


_ALL: Final = (
    Client(
        name="claude-code",
        title="Claude Code",
        files=(
            ConfigFile(
                folder=".claude",
                name="settings.json",
                format=ConfigFormat.JSON,
                settings={("env", "ANTHROPIC_BASE_URL"): "{url}"},
                moved_by="CLAUDE_CONFIG_DIR",
            ),
        ),
        variables={"ANTHROPIC_BASE_URL": "{url}"},
    ),
    Client(
        name="codex",
        title="Codex",
        files=(
            ConfigFile(
                folder=".codex",
                name="config.toml",
                format=ConfigFormat.TOML,
                settings={("openai_base_url",): "{url}/v1"},
                moved_by="CODEX_HOME",
            ),
        ),
        notes=(
            "It does not read OPENAI_BASE_URL. For one call: codex -c 'openai_base_url=\"{url}/v1\"' ...",
            "A `model_provider` of your own in config.toml has a `base_url` of its own: set that one.",
        ),
    ),
    Client(
        name="gemini",
        title="Gemini CLI",
        files=(
            ConfigFile(
                folder=".gemini",
                name=".env",
                format=ConfigFormat.ENV,
                settings={("GOOGLE_GEMINI_BASE_URL",): "{url}"},
            ),
            # With a base URL it takes to an authentication of its own that `gemini -p` rejects.
            ConfigFile(
                folder=".gemini",
                name="settings.json",
                format=ConfigFormat.JSON,
                settings={("security", "auth", "selectedType"): "gemini-api-key"},
            ),
        ),
        notes=(
            "It reads one .env only: that of a project (.gemini/.env or .env) hides this one.",
            "Only with an API key (GEMINI_API_KEY): with a Google account its calls go through Google's Code Assist.",
        ),
    ),
    Client(
        name="opencode",
        title="opencode",
        files=(
            ConfigFile(
                folder=".config/opencode",
                name="opencode.json",
                format=ConfigFormat.JSON,
                settings={
                    ("provider", "anthropic", "options", "baseURL"): "{url}/v1",
                    ("provider", "openai", "options", "baseURL"): "{url}/v1",
                    ("provider", "google", "options", "baseURL"): "{url}/v1beta",
                },
                moved_by="XDG_CONFIG_HOME",
                below_moved="opencode",
            ),
        ),
        notes=("Models of its own service (`opencode/...`) go through that service.",),
    ),
    Client(
        name="aider",
        title="aider",
        files=(
            ConfigFile(
                folder="",
                name=".aider.conf.yml",
                format=ConfigFormat.YAML,
                settings={
                    ("openai-api-base",): '"{url}/v1"',
                    ("set-env",): '["ANTHROPIC_API_BASE={url}"]',
                },
            ),
        ),
        variables={"OPENAI_API_BASE": "{url}/v1", "ANTHROPIC_API_BASE": "{url}"},
        notes=("A .aider.conf.yml of a project goes before that of the home directory.",),
    ),
    Client(
        name="copilot",
        title="GitHub Copilot",
        variables={
            "COPILOT_PROVIDER_BASE_URL": "{url}/v1",
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_API_KEY": "set-by-the-proxy",
            "COPILOT_MODEL": "the-model-to-use",
        },
        notes=(
            "These are for Copilot CLI with a provider of your own. The models of a Copilot subscription, and Copilot "
            "in editors, are called by GitHub's servers: those calls cannot go through a local proxy.",
        ),
    ),
    Client(
        name="cursor",
        title="Cursor",
        notes=(
            "Cursor sends all calls through its own servers, with a key and a base URL of yours too: they cannot reach "
            "a proxy on this machine.",
        ),
    ),
    Client(
        name="windsurf",
        title="Windsurf",
        notes=(
            "Windsurf sends all calls through its own servers, with a key of yours too: they cannot go through a proxy "
            "on this machine.",
        ),
    ),
    Client(
        name="cline",
        title="Cline",
        notes=(
            "Cline CLI: cline auth -p openai -k set-by-the-proxy -m MODEL -b {url}/v1",
            "In an editor: choose the provider Anthropic, tick `Use custom base URL` and enter {url}; or choose "
            "`OpenAI Compatible` and enter {url}/v1.",
        ),
    ),
    Client(
        name="generic",
        title="SDKs and other clients",
        variables=EVERY_CLIENT,
    ),
)
CLIENTS: Final = {one.name: one for one in _ALL}
