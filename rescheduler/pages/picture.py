"""A picture of nodes: one box per node, filled from the bottom by the requests of its pods, CPU left, memory right."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rescheduler.pages.element import Markup, element

#: Width of the picture, in the units of the boxes.
_WIDTH: Final = 640
#: Maximum number of nodes, and the width of their boxes; the last width is for any larger number.
_WIDTHS: Final = ((60, 36), (300, 18), (None, 7))
_GAP: Final = 3


@dataclass(frozen=True, slots=True)
class NodeBox:
    """One node of a picture."""

    name: str
    spot: bool
    cpu: int  #: requested CPU in percent of the allocatable CPU
    memory: int  #: requested memory in percent of the allocatable memory
    freed: bool = False  #: drawn as an empty box with a dashed border


def picture(boxes: Sequence[NodeBox], label: str) -> Markup:
    """Return the picture as SVG. *label* is its text for screen readers."""
    width = next(width for limit, width in _WIDTHS if limit is None or len(boxes) <= limit)
    height = width * 3 // 2
    columns = _WIDTH // (width + _GAP)
    rows = -(-len(boxes) // columns)
    corners = [
        (1 + index % columns * (width + _GAP), 1 + index // columns * (height + _GAP)) for index in range(len(boxes))
    ]
    placed = list(zip(boxes, corners, strict=True))
    outlines = [_outline(box, x, y, width, height) for box, (x, y) in placed]
    fills: dict[bool, list[str]] = {False: [], True: []}
    for box, (x, y) in placed:
        fills[box.spot].append(_bars(box, x, y + height, width, height))
    paths = [element("path", d="".join(bars), class_=f"bars {_kind(spot=spot)}") for spot, bars in fills.items()]
    size = f"0 0 {_WIDTH} {rows * (height + _GAP) + 1}"
    return element("svg", outlines, paths, viewBox=size, role="img", aria_label=label, class_="picture")


def _kind(*, spot: bool) -> str:
    return "spot" if spot else "demand"


def _outline(box: NodeBox, x: int, y: int, width: int, height: int) -> Markup:
    title = element("title", f"{box.name}: {'freed' if box.freed else f'CPU {box.cpu} %, memory {box.memory} %'}")
    kind = "freed" if box.freed else f"box {_kind(spot=box.spot)}"
    return element("path", title, d=f"M{x} {y}h{width}v{height}h-{width}z", class_=kind)


def _bars(box: NodeBox, x: int, bottom: int, width: int, height: int) -> str:
    if box.freed:
        return ""
    half = width / 2
    return _bar(x, bottom, half, height * box.cpu / 100) + _bar(x + half, bottom, half, height * box.memory / 100)


def _bar(x: float, bottom: float, width: float, height: float) -> str:
    return f"M{x:g} {bottom:g}v{-height:.1f}h{width:g}V{bottom:g}z" if height else ""


@functools.lru_cache(maxsize=4096)
def fill(share: int, label: str) -> Markup:
    """Return a bar that shows *share*, in percent, of the resource named by *label*."""
    bar = element("rect", width=share, height=10, class_="part")
    whole = element("rect", width=100, height=10, class_="whole")
    svg = element(
        "svg", whole, bar, viewBox="0 0 100 10", class_="fill", aria_hidden="true", preserveAspectRatio="none"
    )
    return element("span", f"{label} ", svg, f" {share} %", class_="share")
