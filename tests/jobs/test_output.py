"""Output in files of bounded size."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hivemind_trio.jobs.output import TAIL_BYTES, BoundedFile


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(2, 100))
def test_the_latest_output_stays_and_the_files_stay_small(
    tmp_path_factory: object, pieces: list[bytes], limit: int
) -> None:
    folder = Path(tmp_path_factory.mktemp("out"))  # type: ignore[attr-defined]
    path = folder / "job.out"
    file = BoundedFile.open(path, limit)
    for piece in pieces:
        file.write(piece)
    file.close()
    older = path.with_name("job.out.1")
    kept = (older.read_bytes() if older.exists() else b"") + path.read_bytes()
    assert len(kept) <= limit
    whole = b"".join(pieces)
    assert whole.endswith(kept)
    assert len(kept) >= min(len(whole), limit // 2)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_continued_job_appends_and_its_tail_is_of_this_process(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    for text in (b"first\n", b"second\n"):
        file = BoundedFile.open(path, 1_000)
        file.write(text)
        assert file.tail == text.decode()
        file.close()
    assert path.read_bytes() == b"first\nsecond\n"


def test_the_tail_is_bounded(tmp_path: Path) -> None:
    file = BoundedFile.open(tmp_path / "job.out", 10**7)
    file.write(b"x" * (3 * TAIL_BYTES))
    assert len(file.tail) == TAIL_BYTES
    file.close()
