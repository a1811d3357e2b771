"""Drawings in files: SVG, and PNG where Pillow is installed."""

from __future__ import annotations

import unicodedata
from importlib import util
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .console import fail

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageFont import FreeTypeFont
    from PIL.ImageFont import ImageFont as PlainFont

    from hivemind_trio.sim import Drawing, Text

SHARP: Final = 2
"""Pixels of a PNG for each of the drawing: for dense screens, and for print."""

_SMOOTH: Final = 2
"""Factor by which a picture is painted larger and then reduced: Pillow's lines have stairs."""

PILLOW_LEAST: Final = 11
"""As in the `png` extra: those before draw no stroke that is a part of a pixel wide."""

_ANCHORS: Final = {"start": "ls", "middle": "ms", "end": "rs"}


def stop_unless_drawable(path: str) -> None:
    """End with status 2, before anything has run, if no drawing can be written there."""
    ending = Path(path).suffix.lower()
    if ending not in (".svg", ".png"):
        fail(f"--plot {path}: a plot is an SVG or a PNG", hint="`--plot out.svg`, or `--plot out.png`")
    if ending == ".png" and _pillow() < PILLOW_LEAST:
        fail(
            f"--plot {path}: a PNG needs Pillow {PILLOW_LEAST} or later, which is not installed",
            hint=f"`pip install 'pillow>={PILLOW_LEAST}'`; an SVG needs nothing: `--plot out.svg`",
        )
    folder = Path(path).parent
    if not folder.is_dir():
        fail(f"--plot {path}: there is no folder {folder}")
    if Path(path).is_dir():
        fail(f"--plot {path}: this is a folder", hint=f"`--plot {Path(path) / 'out.svg'}`")


def _pillow() -> int:
    """Return the major version of Pillow; 0: not installed."""
    if util.find_spec("PIL") is None:
        return 0
    import PIL

    return int(PIL.__version__.partition(".")[0])


def write_drawing(path: str, drawing: Drawing) -> None:
    """In the format that the file's name asks for; ends with status 2 if it cannot be written."""
    from hivemind_trio.sim import svg

    content = png(drawing) if path.lower().endswith(".png") else svg(drawing).encode()
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        fail(f"--plot {path}: {error.strerror}")


def png(drawing: Drawing) -> bytes:
    """Paint it, on light ground, with the font that Pillow brings: the same picture on every machine."""
    from PIL import Image, ImageDraw

    from hivemind_trio.sim import Area, Ink, Polyline, Text

    big = SHARP * _SMOOTH
    image = Image.new("RGB", (drawing.width * big, drawing.height * big), Ink.GROUND.light)
    texts: list[Text] = []
    for shape in drawing.shapes:
        match shape:
            case Area():
                # Only a picture with transparency lets what is below show through, and only its own box is painted.
                _shade(image, [(x * big, y * big) for x, y in shape.points], shape.ink.light, shape.opacity)
            case Polyline():
                points = [(x * big, y * big) for x, y in shape.points]
                ImageDraw.Draw(image).line(points, shape.ink.light, width=round(shape.width * big), joint="curve")
            case Text():
                texts.append(shape)
    image = image.resize((drawing.width * SHARP, drawing.height * SHARP), Image.Resampling.BOX)
    draw = ImageDraw.Draw(image)
    for text in texts:
        draw.text(
            (text.x * SHARP, text.y * SHARP),
            _spelt(text.words),
            text.ink.light,
            _font(text.size * SHARP),
            anchor=_ANCHORS[text.anchor],
            stroke_width=0.4 * SHARP if text.bold else 0,
        )
    written = BytesIO()
    image.save(written, "PNG", optimize=True)
    return written.getvalue()


def _shade(image: Image.Image, points: list[tuple[float, float]], color: str, opacity: float) -> None:
    from PIL import Image, ImageDraw

    left, top = (int(min(point[axis] for point in points)) for axis in (0, 1))
    right, bottom = (int(max(point[axis] for point in points)) + 1 for axis in (0, 1))
    mask = Image.new("L", (right - left, bottom - top))
    ImageDraw.Draw(mask).polygon([(x - left, y - top) for x, y in points], round(255 * opacity))
    image.paste(color, (left, top, right, bottom), mask)


def _spelt(words: str) -> str:
    """With letters that Pillow's font has: it knows ASCII and a little more, and no accents."""
    return "".join(each for each in unicodedata.normalize("NFKD", words) if not unicodedata.combining(each))


def _font(size: float) -> FreeTypeFont | PlainFont:
    from PIL import ImageFont

    return ImageFont.load_default(size)
