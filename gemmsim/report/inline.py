"""SVG pictures as parts of a page: in its colors, whatever its theme, small, and with names of their own."""

from __future__ import annotations

import re
from html import escape

from gemmsim.plots import Theme

DIGITS = 3
"""Decimals of coordinates: a thousandth of a point is more than any screen shows."""


def variables(theme: Theme) -> dict[str, str]:
    """{color: name of the page's variable for it}, each once."""
    series = {color: f"--series-{number}" for number, color in enumerate(theme.series)}
    return {theme.background: "--background", theme.ink: "--ink", theme.faint: "--line", **series}


def inline(svg: bytes, theme: Theme, prefix: str, label: str, follows: bool = True) -> str:
    """The `<svg>` of a picture that was drawn in `theme`; if it `follows` the page, in the page's variable colors.

    Every name in it begins with `prefix`, so that none is there twice; `label` says in words what it shows.
    """
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", text, flags=re.DOTALL)
    head, _, rest = text.partition(">")
    pictures = re.findall(r"data:image/png;base64,[^\"]*", rest)  # nothing in these is a name, a color or a number
    for number, picture in enumerate(pictures):
        rest = rest.replace(picture, f"@{number}@")
    if follows:
        for color, variable in variables(theme).items():
            rest = rest.replace(color, f"var({variable})")
    for before in ('id="', 'href="#', "url(#"):
        rest = re.sub(rf"(?<![\w-]){re.escape(before)}", f"{before}{prefix}-", rest)
    rest = re.sub(rf"(\d\.\d{{{DIGITS}}})\d+", r"\1", rest)
    rest = re.sub(r"\n\s*", "\n", rest)
    for number, picture in enumerate(pictures):
        rest = rest.replace(f"@{number}@", picture)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box, "Matplotlib's pictures have one"
    return f'<svg {box[0]} xmlns:xlink="http://www.w3.org/1999/xlink" role="img" aria-label="{escape(label)}">{rest}'
