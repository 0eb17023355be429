"""Tests of HTML elements: escaping, and the format of attributes."""

import pytest

from rescheduler.pages.element import Markup, element, joined

CASES = {
    "text is escaped": (element("p", "<b>&"), "<p>&lt;b&gt;&amp;</p>"),
    "an element inside another is not escaped again": (element("p", element("b", "a&b")), "<p><b>a&amp;b</b></p>"),
    "lists, numbers and nothing": (element("ul", [element("li", 1), "<"], None), "<ul><li>1</li>&lt;</ul>"),
    "quotes in attributes": (element("a", title="\"'<&"), '<a title="&quot;&#x27;&lt;&amp;"></a>'),
    "names of attributes": (element("a", class_="x", aria_label="y"), '<a class="x" aria-label="y"></a>'),
    "attributes without a value": (element("a", hidden=True, open=False, id=None), "<a hidden></a>"),
    "elements without an end tag": (element("meta", charset="utf-8"), '<meta charset="utf-8">'),
    "children without an element": (joined(("<", Markup("<br>"))), "&lt;<br>"),
}


@pytest.mark.parametrize(("markup", "expected"), CASES.values(), ids=CASES)
def test_content_and_attributes_are_escaped(markup: Markup, expected: str) -> None:
    assert (markup, type(markup)) == (expected, Markup)
