"""Exports of a package, each imported when it is first asked for: a command starts without what it does not use."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

EXPORT: Final = re.compile(r"^ +from (\.[\w.]+) import (\w+) as \2$", re.MULTILINE)


def exported_by(package: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose `__init__` names its exports under `if TYPE_CHECKING:`.

    Each is a line `from .module import Name as Name`. What reads code statically, mypy and import-linter, reads these
    lines; at run time they are read when the first of the names is asked for. No export is named like a module of its
    package, which would take its place.
    """

    @cache
    def exports() -> dict[str, str]:
        source = pkgutil.get_data(package, "__init__.py")
        assert source is not None
        return {name: module for module, name in EXPORT.findall(source.decode())}

    def get(name: str) -> Any:
        module = None if name.startswith("__") else exports().get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(module, package), name)
        setattr(sys.modules[package], name, found)
        return found

    return get
