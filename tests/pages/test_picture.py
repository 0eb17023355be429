"""Tests of the picture of nodes."""

from rescheduler.pages.nodes import NodeBox, picture

BOXES = (NodeBox("od<1>", spot=False, cpu=50, memory=0), NodeBox("s", spot=True, cpu=100, memory=25))


def test_boxes_are_filled_by_cpu_and_memory() -> None:
    assert picture(BOXES, "Before") == (
        '<svg viewBox="0 0 640 58" role="img" aria-label="Before" class="picture">'
        '<path d="M1 1h36v54h-36z" class="box demand"><title>od&lt;1&gt;: CPU 50 %, memory 0 %</title></path>'
        '<path d="M40 1h36v54h-36z" class="box spot"><title>s: CPU 100 %, memory 25 %</title></path>'
        '<path d="M1 55v-27.0h18V55z" class="bars demand"></path>'
        '<path d="M40 55v-54.0h18V55zM58 55v-13.5h18V55z" class="bars spot"></path></svg>'
    )


def test_a_freed_node_is_an_empty_box() -> None:
    text = picture((NodeBox("od", spot=False, cpu=50, memory=50, freed=True),), "After")
    assert 'class="freed"><title>od: freed</title>' in text
    assert '<path d="" class="bars demand"></path>' in text


def test_many_boxes_are_small_and_in_rows() -> None:
    text = picture([NodeBox(f"n{number}", spot=False, cpu=1, memory=1) for number in range(301)], "Many")
    assert text.startswith('<svg viewBox="0 0 640 66"')
    assert text.count("h7v10h-7z") == 301
