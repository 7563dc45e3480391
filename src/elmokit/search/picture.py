"""Drawings become files: SVG or PNG, the same bytes each time."""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.atomic import write_atomically
from elmokit.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

# What files say of their making, left out: dates and versions would make them differ.
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
}
# Fonts with Chinese characters, after the usual one; those that are there are used.
_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei", "Droid Sans Fallback", "PingFang SC", "Microsoft YaHei", "SimHei",
    "Arial Unicode MS", "Unifont",
)  # fmt: skip


def draw_panels(
    path: Path,
    draw: Callable[["Figure", list["Axes"]], None],
    *,
    panels: int,
    size: tuple[float, float],
) -> None:
    """Draw a row of panels, each of a size in inches, into a file; its ending says which kind."""
    check_picture(path)
    import matplotlib  # noqa: PLC0415  an extra
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.font_manager import get_font_names  # noqa: PLC0415

    fonts = ["DejaVu Sans", *(font for font in _FONTS if font in get_font_names())]
    style: Any = {
        "font.family": fonts,
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": "elmokit",  # ids would be drawn by chance otherwise
        "text.parse_math": False,  # a word may be a dollar sign
    }
    with matplotlib.rc_context(style), warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")  # characters no font here has: said once, below
        figure = Figure(figsize=(panels * size[0], size[1]), layout="constrained")
        draw(figure, [*figure.subplots(1, panels, squeeze=False)[0]])
        kind = path.suffix.lower()
        write_atomically(
            path,
            lambda file: figure.savefig(
                file, format=kind[1:], metadata=_METADATA[kind], bbox_inches="tight", dpi=150
            ),
        )
    if doubts and kind == ".png":
        logger.warning("%s: %s; an SVG file keeps all text", path, doubts[0].message)


def check_picture(path: Path) -> None:
    """Refuse an ending that no picture of ours has, and any picture without matplotlib."""
    if path.suffix.lower() not in _METADATA:
        raise InputError(f"{path}: a picture ends in .svg or .png")
    try:
        import matplotlib  # noqa: F401, PLC0415  an extra
    except ImportError:
        raise InputError("a picture needs matplotlib: pip install 'elmokit[plot]'") from None
