"""Versions in base URLs: where a base URL has one, clients of some APIs append none."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

_VERSION: Final = re.compile(r"v\d+(?:(?:alpha|beta)\d*)?")


def is_version(segment: str) -> bool:
    """Return True if a segment of a path is the version of an API."""
    return _VERSION.fullmatch(segment) is not None


def has_version(base: str) -> bool:
    """Return True if the path of a URL has a version, wherever it stands: `/v1`, `/api/paas/v4`, `/v1beta/openai`."""
    return any(map(is_version, urlsplit(base).path.split("/")))
