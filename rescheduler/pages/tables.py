"""Tables with a caption and header cells."""

from collections.abc import Iterable, Sequence

from rescheduler.pages.element import Child, Markup, element


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Child]], numbers: frozenset[int]) -> Markup:
    """Return a table, or a sentence if it has no rows. *numbers* are the indexes of right-aligned columns."""
    kinds = ["number" if column in numbers else None for column in range(len(head))]
    body = [
        element("tr", [element("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)]) for row in rows
    ]
    if not body:
        return element("p", "None.")
    names = [element("th", name, scope="col", class_=kind) for name, kind in zip(head, kinds, strict=True)]
    parts = (element("caption", caption), element("thead", element("tr", names)), element("tbody", body))
    return element("div", element("table", parts), class_="scroll")
