"""Places of the files that outlive a proxy."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import attrs

if TYPE_CHECKING:
    from hivemind_trio.policy import StoreSettings

FOLDER: Final = "hivemind-trio"


@final
@attrs.frozen
class StatePlace:
    """Paths of the files that outlive a proxy."""

    state: str
    """Budgets and hints."""
    journal: str
    """A row for each call."""


def state_home() -> Path:
    """Return the folder of the states of all policies.

    Raises:
        RuntimeError: There is no home directory.
    """
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "state") / FOLDER


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone, as the XDG base directories are made.

    Raises:
        OSError: It cannot be made.
    """
    if not folder.is_dir():
        if folder.parent != folder:
            make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def policy_key(policy: str | None, port: int) -> str:
    """Return the name that files of a policy's proxy have.

    Args:
        policy: Path of the policy's file; None: it was made from what is found.
        port: Of the listener: it tells proxies without a policy apart.
    """
    if policy is None:
        return f"found-{port}"
    real = os.path.realpath(policy)
    digest = hashlib.sha256(real.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{Path(real).stem}-{digest}"


def state_place(policy: str | None, settings: StoreSettings, port: int, folder: str | None = None) -> StatePlace:
    """Return the place that a policy's state has, unless its `store` says another.

    Args:
        policy: Path of the policy's file; None: it was made from what is found.
        port: Of the listener: it tells proxies without a policy apart.
        folder: Instead of the port.

    Raises:
        RuntimeError: There is no home directory.
    """
    if settings.path is not None:
        # Beside the policy, as its other paths are.
        beside = Path(policy).parent if policy is not None else Path()
        state = Path(os.path.normpath(beside / settings.path))
    elif policy is None and folder is not None:
        state = Path(folder) / "state.db"
    else:
        state = state_home() / policy_key(policy, port) / "state.db"
    return StatePlace(str(state), str(state.with_name("journal.db")))
