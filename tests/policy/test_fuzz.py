"""The fuzz target of the language, and the runner, small so that they do not rot."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from fuzz import policy_text
from fuzz.run import OPTIONAL, TARGETS, load, main, mutated, search


@pytest.mark.parametrize("seed", policy_text.SEEDS, ids=range(len(policy_text.SEEDS)))
def test_a_seed_holds(seed: bytes) -> None:
    policy_text.one_input(seed)


# What the search has found; each was a traceback.
FOUND = {
    "the text ends within a list within a block": b'\x00provider openai { serves ["gpt-*",',
    "an empty line in a block": b"\x00provider a {\n  queue 4\n\n  concurrency 2\n}\n",
}


@pytest.mark.parametrize("data", FOUND.values(), ids=FOUND)
def test_what_was_found_once_holds(data: bytes) -> None:
    policy_text.one_input(data)


@pytest.mark.slow
def test_a_few_hundred_mutations_hold() -> None:
    tried, failed = search(policy_text, Random(2), seconds=60, inputs=250)

    assert (tried, failed) == (250, None)


def test_the_same_seed_gives_the_same_inputs() -> None:
    first, second = ([mutated(random, policy_text.SEEDS) for _ in range(20)] for random in (Random(3), Random(3)))

    assert first == second
    assert len(set(first)) > 10


class Failing:
    SEEDS = (b"good", b"good too")

    def one_input(self, data: bytes) -> None:
        assert data in self.SEEDS, "found"


def test_the_first_input_that_fails_ends_the_search_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    tried, failed = search(Failing(), Random(1), seconds=60)

    assert tried > len(Failing.SEEDS)
    assert failed is not None
    assert failed not in Failing.SEEDS
    assert "found" in capsys.readouterr().err


def test_a_run_says_what_it_tried_and_a_failure_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["policy_text", "--inputs", "3"]) == 0
    assert capsys.readouterr().out == "policy_text: 3 inputs, seed 1: all invariants hold\n"

    monkeypatch.setattr(policy_text, "one_input", Failing().one_input)
    assert main(["policy_text"]) == 1
    assert "fails: python -m fuzz.policy_text policy_text.failed" in capsys.readouterr().out
    assert (tmp_path / "policy_text.failed").read_bytes() == policy_text.SEEDS[0]


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_is_one(name: str) -> None:
    target = load(name)

    assert target.__doc__
    assert "nvariant" in target.__doc__
    assert all(isinstance(seed, bytes) for seed in target.SEEDS)
    assert callable(target.one_input)


def test_every_file_of_the_folder_is_a_target_or_a_program_of_its_own() -> None:
    folder = Path(policy_text.__file__).parent

    assert {path.stem for path in folder.glob("*.py")} == {*TARGETS, *OPTIONAL, "run", "chaos", "reloads"}


def test_a_target_that_compares_with_what_is_not_there_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fuzz.run.OPTIONAL", {"policy_regions": "no_such_module"})

    assert main(["--inputs", "1"]) == 0
    assert "policy_regions: left out, no_such_module is missing" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["policy_regions"])
    assert ended.value.code == 2
    assert "policy_regions needs no_such_module" in capsys.readouterr().err
