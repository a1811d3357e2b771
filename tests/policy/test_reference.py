"""The reference in `grammar/README.md` is the schema's. `python -m tests.policy.test_reference` writes it anew.

And with it whatever else holds a list of the schema's words.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from hivemind_trio.policy import MemoryFiles, check
from hivemind_trio.policy.inspect.effective_settings import reference

README: Final = Path(__file__).parents[2] / "grammar" / "README.md"
BEGIN: Final = "<!-- reference:begin, made by `python -m tests.policy.test_reference` -->\n"
END: Final = "<!-- reference:end -->\n"


def with_reference(text: str) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin
    assert end
    return f"{before}{begin}\n{reference()}{end}{after}"


def test_the_reference_is_the_schemas() -> None:
    text = README.read_text(encoding="utf-8")

    assert text == with_reference(text), "run `python -m tests.policy.test_reference`"


def test_the_examples_that_are_policies_check() -> None:
    blocks = re.findall(r"```hmp\n(hmp 1 .*?)```", README.read_text(encoding="utf-8"), re.DOTALL)

    assert blocks
    for block in blocks:
        files = MemoryFiles({"readme.hmp": block, "common/models.hmp": "hmp 1\n"})
        found = [one.message for one in check("readme.hmp", files).diagnostics if one.code != "HM308"]
        assert not found


if __name__ == "__main__":
    from tests.editor import test_textmate

    test_textmate.write()
    README.write_text(with_reference(README.read_text(encoding="utf-8")), encoding="utf-8")
