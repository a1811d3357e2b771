"""Exports that are imported when they are asked for are those that their package names for type checkers."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

import pytest

PACKAGES: Final = ("hivemind_trio.control", "hivemind_trio.policy", "hivemind_trio.store")


def named(package: str) -> list[tuple[str, str]]:
    """Return the module and the name of each import in the `__init__` of a package, except that of `lazy`."""
    source = Path(str(import_module(package).__file__)).read_text("utf-8")
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.level == 1]
    return [(f"{package}.{node.module}", alias.name) for node in imports for alias in node.names]


@pytest.mark.parametrize("package", PACKAGES)
def test_each_export_is_that_of_its_module(package: str) -> None:
    assert len(named(package)) > 10
    for module, name in named(package):
        exported = getattr(import_module(package), name)
        assert exported is getattr(import_module(module), name), name


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_takes_the_place_of_an_export(package: str) -> None:
    modules = {module.name for module in iter_modules(import_module(package).__path__)}

    assert modules & {name for _, name in named(package)} == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_package_does_not_export_is_an_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        import_module(package).nothing  # noqa: B018  the access is what is tested


@pytest.mark.slow
def test_to_ask_a_proxy_neither_the_scheduler_nor_a_server_is_imported() -> None:
    script = """if True:
        import sys
        from hivemind_trio.cli.control.connect import client_at
        try:
            with client_at('/nowhere') as client:
                client.get('/v1/status')
        except Exception as error:
            print(repr(error), *sys.modules)
        """
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert ended.stdout.startswith("NotReachable"), ended.stdout
    imported = set(ended.stdout.split())
    assert "hivemind_trio.control.client" in imported
    assert imported & {f"hivemind_trio.{room}" for room in ("scheduler", "sim", "admin", "proxy", "listen")} == set()
    assert imported & {"hypercorn", "lark"} == set()
