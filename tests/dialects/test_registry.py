"""Every dialect has one file and one record, and what the records say fits together."""

from __future__ import annotations

from pathlib import Path

import pytest

from hivemind_trio import dialects
from hivemind_trio.dialects import DIALECTS, KNOWN_NAMES, Dialect, speakers
from hivemind_trio.model import Api
from hivemind_trio.wire import endpoint
from hivemind_trio.wire.request.request_facts import MARKS

each_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.api)


def test_every_member_of_api_has_a_record_in_a_file_of_its_name() -> None:
    files = {path.stem for path in Path(dialects.__file__).parent.glob("*.py")}

    assert set(DIALECTS) == set(Api)
    assert {api.value for api in Api} <= files


@each_dialect
def test_a_server_that_has_another_s_paths_has_a_rank_of_its_own_there(dialect: Dialect) -> None:
    for api, rank in dialect.compatible_with.items():
        same = [other.api for other in DIALECTS.values() if other.compatible_with.get(api) == rank]
        assert same == [dialect.api]
        assert dialect.api in speakers(api)[1:]


@each_dialect
def test_calls_of_simulated_agents_are_recognised(dialect: Dialect) -> None:
    assert dialect.api in endpoint(dialect.usual_path, {}).apis


@each_dialect
def test_a_telling_header_settles_a_shared_path(dialect: Dialect) -> None:
    for name, value in dialect.telling_headers.items():
        assert endpoint("/v1/models", {name: value}).apis == speakers(dialect.api)


@each_dialect
def test_a_provider_with_a_base_url_is_known_by_its_name(dialect: Dialect) -> None:
    assert (dialect.api.value in KNOWN_NAMES) == (dialect.base_url is not None)
    assert dialect.base_url is not None or not dialect.key_variables


@each_dialect
def test_a_picture_is_in_what_is_searched_for_pictures(dialect: Dialect) -> None:
    for picture in dialect.request.pictures:
        assert any(mark in picture for mark in MARKS)
