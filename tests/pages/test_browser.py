"""Tests of the report and the status page in a headless Chromium."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from prometheus_client import CollectorRegistry

from devcluster.errors import SetupError
from rescheduler.cli import main
from rescheduler.clock import SystemClock
from rescheduler.net.server import serving
from rescheduler.observe.events import DrainProgressed, DrainStarted, Held, PodProgress, Waiting
from rescheduler.observe.pages import Health, application
from rescheduler.observe.status import Status
from rescheduler.pages.report import as_html
from rescheduler.pages.simulation import RunPicture, simulation_page
from rescheduler.planning.outcome import Plan, Reason, Rejected
from rescheduler.planning.what_if.overview import Lever
from rescheduler.settings import ListenAddress
from tests.observe.builders import BLOCKED, OD, PLAN, WEB, ended, planned
from tests.pages.browser import browser
from tests.pages.clusters import planned as overview_of
from tests.planning.builders import NOW

#: Far more than a page needs; a test that waits this long fails.
TIMEOUT_MS = 60_000
#: The interval between two reads of a live page.
POLL_MS = 2_000
MINUTE_MS = 60_000
#: How often a test checks for a change, and how long it waits in between.
TRIES = 600
PAUSE_MS = 50
DOCS = Path(__file__).parents[2] / "docs"
KINDS = {"on-demand": "ON_DEMAND", "spot": "SPOT"}
#: The contrast that WCAG 2.1 requires for text (level AA).
CONTRAST = 4.5


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser for this module only: its event loop runs on this thread and disturbs tests that need their own."""
    try:
        with browser() as started:
            yield started
    except SetupError as error:
        pytest.skip(f"no Chromium: {error}")


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page that must not report an error."""
    errors: list[str] = []
    context = chromium.new_context()
    context.set_default_timeout(TIMEOUT_MS)
    opened = context.new_page()
    opened.on("console", lambda message: errors.append(message.text))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert errors == []


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report on 12 on-demand and 12 spot nodes."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(as_html(overview_of(12, 12), NOW), encoding="utf-8")
    return file.as_uri()


VERDICTS = overview_of(12, 12).planning.verdicts
FREED = next(verdict for verdict in VERDICTS if isinstance(verdict, Plan))
KEPT = next(verdict for verdict in VERDICTS if isinstance(verdict, Rejected))


class TestReport:
    def test_the_report_has_headings_landmarks_and_table_headers(self, page: Page, report: str) -> None:
        page.goto(report)
        headings = page.get_by_role("heading").all_inner_texts()
        assert headings[:2] == ["On-demand nodes that spot nodes can replace", "Summary"]
        assert [name for name in ("Nodes before and after", "On-demand nodes") if name not in headings] == []
        assert [page.get_by_role(role).count() for role in ("banner", "main", "search", "contentinfo")] == [1] * 4
        assert page.get_by_role("columnheader", name="Instance type").count() == 1
        assert page.get_by_role("img", name=re.compile("^After: ")).count() == 1
        expect(page.get_by_label("Search nodes, pods and reasons")).to_be_visible()

    def test_nothing_is_loaded_from_elsewhere(self, page: Page, report: str) -> None:
        loaded: list[str] = []
        page.on("request", lambda request: loaded.append(request.url))
        page.goto(report)
        page.get_by_label("Search").fill("x")
        assert loaded == [report]

    def test_a_node_unfolds_to_its_pods(self, page: Page, report: str) -> None:
        page.goto(report)
        node = page.locator(f"[id='node-{FREED.node}']")
        pod = node.get_by_role("cell", name=str(FREED.placements[0].pod))
        expect(pod).to_be_hidden()
        node.locator("summary").press("Enter")
        expect(pod).to_be_visible()
        assert node.get_by_role("columnheader").all_inner_texts() == ["Pod", "Moves to"]
        page.get_by_role("button", name="Close all").click()
        expect(pod).to_be_hidden()
        page.get_by_role("button", name="Open all").click()
        expect(pod).to_be_visible()

    @pytest.mark.parametrize(
        ("query", "nodes"),
        [
            (FREED.node, [FREED.node]),
            (f"{FREED.node.upper()} drained", [FREED.node]),
            (str(KEPT.blockers[0].pod), [KEPT.node]),
            ("no such node", []),
        ],
    )
    def test_the_search_shows_only_matching_nodes(self, page: Page, report: str, query: str, nodes: list[str]) -> None:
        page.goto(report)
        page.get_by_label("Search").fill(query)
        expect(page.locator("#count")).to_have_text(f"{len(nodes)} of {len(VERDICTS)} nodes match")
        assert page.locator("details.node:visible .name").all_inner_texts() == nodes
        page.get_by_label("Search").fill("")
        assert page.locator("details.node:visible").count() == len(VERDICTS)
        expect(page.locator("#count")).to_have_text("")

    def test_the_search_for_a_pod_shows_only_this_pod_and_folds_its_node_again(self, page: Page, report: str) -> None:
        page.goto(report)
        wanted = str(FREED.placements[0].pod)
        page.get_by_label("Search").fill(wanted)
        assert page.locator("tr.pod:visible td:first-child").all_inner_texts() == [wanted]
        page.get_by_label("Search").fill("")
        assert page.locator("tr.pod:visible").count() == 0

    def test_all_nodes_are_open_while_the_page_is_printed(self, page: Page, report: str) -> None:
        page.goto(report)
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details[open]").count() == len(VERDICTS)
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details[open]").count() == 0
        page.emulate_media(media="print")
        expect(page.get_by_label("Search")).to_be_hidden()
        assert page.pdf().startswith(b"%PDF")

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_all_texts_have_sufficient_contrast(self, page: Page, report: str, scheme: str) -> None:
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.goto(report)
        page.get_by_role("button", name="Open all").click()
        colors: list[list[str]] = page.evaluate(COLORS)
        assert len(colors) >= 5
        assert [pair for pair in colors if contrast(*map(luminance, pair)) < CONTRAST] == []
        dark = luminance(colors[0][1]) < 0.1
        assert dark == (scheme == "dark")

    def test_without_javascript_all_nodes_are_listed(self, chromium: Browser, report: str) -> None:
        context = chromium.new_context(java_script_enabled=False)
        plain = context.new_page()
        plain.goto(report)
        assert plain.locator("details.node:visible").count() == len(VERDICTS)
        expect(plain.locator("#search")).to_be_hidden()
        context.close()

    def test_a_report_of_a_thousand_nodes_can_be_searched(self, page: Page, tmp_path: Path) -> None:
        file = tmp_path / "large.html"
        file.write_text(as_html(overview_of(1000, 1000), NOW), encoding="utf-8")
        page.goto(file.as_uri())
        page.get_by_label("Search").fill("shop/web77-a")
        expect(page.locator("#count")).to_have_text("1 of 1000 nodes match")


#: The widths of a telephone, a tablet and a screen, in CSS pixels.
WIDTHS = (375, 768, 1280)
#: The height of the report on the sample at the smallest width.
HIGHEST = 8_300
#: Visible elements that reach beyond the right edge of the window, or that can be scrolled to the right.
CUT = """() => [...document.body.querySelectorAll("*")].filter((element) => {
  const box = element.getBoundingClientRect();
  const hidden = !box.width || box.right < 0 || getComputedStyle(element).visibility === "hidden";
  const scrolls = getComputedStyle(element).overflowX !== "visible" && element.tagName !== "INPUT";
  const wide = box.right > document.documentElement.clientWidth + 1;
  return !hidden && (wide || (scrolls && element.scrollWidth > element.clientWidth + 1));
}).map((element) => element.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the report on the sample, with prices."""
    file = tmp_path_factory.mktemp("sample") / "report.html"
    labels = [f"--{kind}-node-label=eks.amazonaws.com/capacityType={value}" for kind, value in KINDS.items()]
    files = [f"--snapshot={DOCS}/sample.json.gz", f"--prices={DOCS}/sample-prices.csv", f"--output-file={file}"]
    with pytest.raises(SystemExit) as exited:
        main(["report", *files, *labels])
    assert exited.value.code == 0
    return file.as_uri()


class TestWidths:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", WIDTHS)
    def test_nothing_is_cut_off(self, page: Page, sample: str, width: int, scheme: str) -> None:
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(sample)
        assert page.evaluate(CUT) == []
        assert page.evaluate("document.documentElement.scrollHeight") <= HIGHEST
        colors: list[list[str]] = page.evaluate(COLORS)
        assert [pair for pair in colors if contrast(*map(luminance, pair)) < CONTRAST] == []
        page.get_by_role("button", name="Open all").click()
        assert page.evaluate(CUT) == []

    def test_tables_are_lists_on_a_telephone_and_have_the_same_cells(self, page: Page, sample: str) -> None:
        before = "element => getComputedStyle(element, '::before').content"
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(sample)
        table = page.get_by_role("table", name=re.compile("^Freed by moving "))
        rows, cells = table.get_by_role("row").count(), table.get_by_role("cell").all_inner_texts()
        price = table.get_by_role("cell").nth(4)
        assert price.evaluate(before) == "none"
        page.set_viewport_size({"width": 375, "height": 800})
        assert price.evaluate(before) == '"Price per month: "'
        assert (table.get_by_role("row").count(), table.get_by_role("cell").all_inner_texts()) == (rows, cells)
        first, second = (table.get_by_role("row").nth(number).bounding_box() for number in (1, 2))
        assert first is not None
        assert second is not None
        assert second["y"] >= first["y"] + first["height"] - 1

    @pytest.mark.parametrize("width", WIDTHS)
    def test_everything_is_reached_with_the_keyboard(self, page: Page, sample: str, width: int) -> None:
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(sample)
        reached = []
        for _ in range(7):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", reached[-1]
        tables = ["As a table"] * 2  # of the pictures
        assert reached[:6] == ["Skip to the nodes", *tables, "search", "open-all", "close-all"]
        node = page.locator("details.node").first
        assert node.get_attribute("open") is None
        page.keyboard.press("Enter")
        assert node.get_attribute("open") is not None
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Space")
        assert page.locator("details.node[open]").count() == 0


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page of a simulation with six runs, one of them with very long flags."""
    steps = [(float(at), float(at % 7)) for at in range(0, 86_400, 30)]
    series = {"On-demand nodes": steps, "Cost of all nodes in $ per hour": [(0.0, 1_234_567.8), (3600.0, 0.25)]}
    lines = ["00:10  node ip-10-0-0-1.eu-west-1.compute.internal: drained in 38 s, 4 of 4 pods moved"] * 40
    figures = {"owners below the wanted number": "33 times, 5m in total, longest 28s"}
    flags = "--exclude-namespaces=" + ",".join(f"namespace-{number}" for number in range(20))
    runs = {name: RunPicture(figures, lines, 86_400.0, series) for name in ("as given", *"abcd", flags)}
    file = tmp_path_factory.mktemp("simulation") / "page.html"
    file.write_text(simulation_page(runs), encoding="utf-8")
    return file.as_uri()


class TestSimulation:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", WIDTHS)
    def test_nothing_is_cut_off(self, page: Page, simulation: str, width: int, scheme: str) -> None:
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(simulation)
        page.locator("summary").first.click()
        assert page.evaluate(CUT) == []
        colors: list[list[str]] = page.evaluate(COLORS)
        assert [pair for pair in colors if contrast(*map(luminance, pair)) < CONTRAST] == []

    def test_pictures_are_named_and_runs_are_told_apart(self, page: Page, simulation: str) -> None:
        page.goto(simulation)
        images = page.get_by_role("img")
        names = [image.get_attribute("aria-label") or "" for image in images.all()]
        assert [name.partition(":")[0] for name in names] == ["On-demand nodes", "Cost of all nodes in $ per hour"]
        assert names[1].startswith("Cost of all nodes in $ per hour: 1,234,568 to 0.25; ")
        look = "lines => lines.map(line => (s => s.stroke + s.strokeDasharray)(getComputedStyle(line)))"
        looks: list[str] = images.first.locator("polyline").evaluate_all(look)
        assert (len(looks), len(set(looks))) == (6, 5)
        assert page.get_by_role("columnheader").all_inner_texts()[:2] == ["Figure", "as given"]


#: Levers whose names and changes are long words.
LONG_LEVERS = tuple(
    Lever(
        name, reason, "pods of 19 controllers demand this label of a node", (KEPT.node,), (KEPT.node,), changes=changes
    )
    for name, reason, changes in (
        (
            "Selector eks.amazonaws.com/capacityType in (ON_DEMAND,RESERVED), Taint cast.ai/spot=true:NoSchedule",
            Reason.PINNED,
            (
                "unpin selector eks.amazonaws.com/capacityType in (ON_DEMAND,RESERVED)",
                "untaint cast.ai/spot",
            ),
        ),
        (
            "NodeKey cluster-autoscaler.kubernetes.io/scale-down-disabled",
            Reason.SCALE_DOWN_DISABLED,
            ("allow all scale-down-disabled",),
        ),
        (
            "Setting --ignore-local-volumes=credential-socket,istio-data,istio-envoy,workload-certs,workload-socket",
            Reason.LOCAL_STORAGE,
            ("ignore-local-volumes=credential-socket,istio-data,istio-envoy,workload-certs,workload-socket",),
        ),
    )
)


@pytest.mark.parametrize("width", WIDTHS)
def test_levers_with_long_names_are_not_cut_off(page: Page, tmp_path: Path, width: int) -> None:
    file = tmp_path / "report.html"
    file.write_text(as_html(overview_of(12, 12, *LONG_LEVERS), NOW), encoding="utf-8")
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(file.as_uri())
    assert page.locator(".steps li").count() == len(LONG_LEVERS)
    assert page.evaluate(CUT) == []


#: The text and background colors of all elements with a text of their own, each pair once.
COLORS = """() => {
  const background = (element) => {
    for (; element; element = element.parentElement) {
      const color = getComputedStyle(element).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
    return "rgb(255, 255, 255)";
  };
  const own = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const texts = [...document.body.querySelectorAll(":not(script, svg *)")].filter(own);
  const pairs = texts.map((element) => `${getComputedStyle(element).color}|${background(element)}`);
  return [...new Set(pairs)].map((pair) => pair.split("|"));
}"""


def luminance(color: str) -> float:
    """Return the relative luminance of ``rgb(r, g, b)``, as WCAG defines it."""
    shares = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: float, second: float) -> float:
    return (max(first, second) + 0.05) / (min(first, second) + 0.05)


@pytest.fixture
def status() -> Status:
    board = Status()
    board(planned(PLAN, BLOCKED))
    return board


@pytest.fixture
def live(page: Page, status: Status) -> Iterator[Page]:
    """The status page in the browser. Its timers run only when the test lets them."""
    health = Health(SystemClock(), 10, lambda: True)
    with serving(application(CollectorRegistry(), health, status), ListenAddress("127.0.0.1", 0)) as address:
        page.clock.install(time=NOW)
        page.goto(f"http://{address}/statusz")
        page.clock.pause_at(NOW + timedelta(hours=1))
        page.evaluate(RECORD_DELAYS)
        yield page
        assert len(page.evaluate("delays")) > 0, "the page was loaded again, or did not poll"
        page.goto("about:blank")


#: Record the delays of all timers that the page starts from now on.
RECORD_DELAYS = """() => {
  window.delays = [];
  const start = window.setTimeout;
  window.setTimeout = (call, delay) => { delays.push(delay); return start(call, delay); };
}"""


def run_until(live: Page, condition: Callable[[], bool]) -> None:
    """Let the page's timers run until *condition* holds."""
    for _ in range(TRIES):
        live.clock.run_for(POLL_MS)
        live.wait_for_timeout(PAUSE_MS)
        if condition():
            return
    pytest.fail("the page did not reach the expected state")


def set_hidden(live: Page, *, hidden: bool) -> None:
    script = "hidden => Object.defineProperty(document, 'hidden', {get: () => hidden, configurable: true})"
    live.evaluate(script, hidden)
    live.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


class TestStatusPage:
    @pytest.mark.parametrize("width", WIDTHS)
    def test_nothing_is_cut_off(self, live: Page, status: Status, width: int) -> None:
        live.set_viewport_size({"width": width, "height": 800})
        status(DrainStarted(OD, PLAN))
        status(DrainProgressed(OD, "evicting", ((WEB, PodProgress.EVICTING),)))
        status(ended())
        run_until(live, lambda: live.get_by_role("cell", name="done").count() == 1)
        assert live.evaluate(CUT) == []

    def test_the_page_updates_itself_and_keeps_what_is_open_and_searched(self, live: Page, status: Status) -> None:
        node = live.locator("#node-od-2")
        node.locator("summary").click()
        live.get_by_label("Search").fill("od-2")
        status(DrainStarted(OD, PLAN))
        status(DrainProgressed(OD, "evicting", ((WEB, PodProgress.EVICTING),)))
        run_until(live, lambda: "Phase: evicting. Pods: 1 evicting." in live.locator("#drain").inner_text())
        status(ended())
        status(planned(PLAN, replace(BLOCKED, blockers=BLOCKED.blockers[:1])))
        status(Held(Waiting.DRAIN_DELAY, "the drain delay runs for 8 s more"))
        run_until(live, lambda: "the drain delay runs for 8 s more" in live.locator("#state").inner_text())
        assert live.locator("#drain").inner_text() == ""
        assert live.get_by_role("cell", name="done").count() == 1
        assert node.get_attribute("open") is not None
        assert node.locator("li").count() == 1
        assert live.get_by_label("Search").input_value() == "od-2"
        expect(live.locator("#node-od-1")).to_be_hidden()

    def test_a_node_that_is_gone_disappears_and_a_new_one_appears(self, live: Page, status: Status) -> None:
        status(planned(BLOCKED, replace(PLAN, node="od-3")))
        names = live.locator("details.node .name")
        run_until(live, lambda: names.all_inner_texts() == ["od-2", "od-3"])

    def test_a_page_that_did_not_change_is_not_sent_again(self, live: Page) -> None:
        statuses: list[int] = []
        live.on("response", lambda response: statuses.append(response.status))
        run_until(live, lambda: len(statuses) >= 4)
        assert set(statuses[1:]) == {304}

    def test_a_daemon_that_does_not_respond_is_reported_and_polled_less_often(self, live: Page, status: Status) -> None:
        live.route("**/statusz", lambda route: route.fulfill(status=204))
        run_until(live, lambda: len(live.evaluate("delays")) >= 8)
        message = "The daemon does not respond; this page shows an earlier state."
        expect(live.locator("#connection")).to_have_text(message)
        delays = live.evaluate("delays.filter(delay => delay > 2000)")
        assert delays[:6] == [4_000, 8_000, 16_000, 32_000, 60_000, 60_000][: len(delays)]
        assert len(delays) >= 5
        live.unroute("**/statusz")
        status(Held(Waiting.DRAIN_DELAY, "later"))
        run_until(live, lambda: "Nothing is drained: later." in live.locator("#state").inner_text())
        expect(live.locator("#connection")).to_have_text("")
        assert live.evaluate("delays").pop() == POLL_MS

    def test_a_hidden_page_does_not_poll(self, live: Page) -> None:
        run_until(live, lambda: len(live.evaluate("delays")) >= 1)
        asked: list[str] = []
        set_hidden(live, hidden=True)
        live.wait_for_timeout(PAUSE_MS)
        live.on("request", lambda request: asked.append(request.url))
        live.clock.run_for(MINUTE_MS)
        assert asked == []
        set_hidden(live, hidden=False)
        run_until(live, lambda: len(asked) >= 1)

    def test_without_javascript_the_page_reloads(self, chromium: Browser, live: Page) -> None:
        run_until(live, lambda: len(live.evaluate("delays")) >= 1)
        context = chromium.new_context(java_script_enabled=False)
        plain = context.new_page()
        plain.goto(live.url)
        assert plain.locator("noscript meta[http-equiv=refresh]").get_attribute("content") == "10"
        assert plain.locator("details.node:visible").count() == 2
        context.close()
