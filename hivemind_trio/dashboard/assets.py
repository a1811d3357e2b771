"""Files of the page."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from hivemind_trio.control import ControlAnswer, ControlRequest, ControlRoute, problem

TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""Ending of a file's name -> its media type. Others are not served."""

HEADERS: Final = (
    ("content-security-policy", "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ("referrer-policy", "no-referrer"),
)


@cache
def page_files() -> dict[str, bytes]:
    """Return the files by their path under `/dashboard/`."""
    found, folder = {}, files(__package__) / "page"
    for name, place in (("", folder), ("vendor/", folder / "vendor")):
        for file in place.iterdir():
            if file.is_file() and file.name.rpartition(".")[2] in TYPES:
                found[f"{name}{file.name}"] = file.read_bytes()
    return found


def page_routes() -> list[ControlRoute]:
    """Return the routes of the page and its files."""

    async def page(_: ControlRequest) -> ControlAnswer:
        return _file("index.html")

    async def file(request: ControlRequest) -> ControlAnswer:
        return _file(request.parts["file"])

    async def vendored(request: ControlRequest) -> ControlAnswer:
        return _file(f"vendor/{request.parts['file']}")

    return [
        ControlRoute("GET", "/", page),
        ControlRoute("GET", "/dashboard/{file}", file),
        ControlRoute("GET", "/dashboard/vendor/{file}", vendored),
    ]


def _file(name: str) -> ControlAnswer:
    found = page_files().get(name)
    if found is None:
        return problem(404, f"the page has no file {name}", "no-such-resource")
    return ControlAnswer(body=found, content_type=TYPES[name.rpartition(".")[2]], headers=HEADERS)
