"""Lines of a page as an HTML document, for ``explain -o html``. Separate, because it is imported only for this
output.
"""

from collections.abc import Iterable, Iterator

from rescheduler.cli.console import Line
from rescheduler.pages.element import Markup, document, element


def as_html(title: str, lines: Iterable[Line]) -> str:
    """Return *lines* as a document. A styled line begins a section; indented lines become items of a list."""
    content = element("main", element("h1", title), _elements(lines))
    return document(title, element("div", content))


def _elements(lines: Iterable[Line]) -> Iterator[Markup]:
    items: list[Markup] = []
    for line in lines:
        if line.level:
            items.append(element("li", line.text, class_=f"level-{line.level}"))
            continue
        if items:
            yield element("ul", items)
            items = []
        if line.text:
            yield element("h2" if line.style else "p", line.text)
    if items:
        yield element("ul", items)
