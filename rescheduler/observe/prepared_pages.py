"""Pages that are rendered before they are requested: the metrics, and the status page as HTML."""

import hashlib
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from rescheduler.clock import Clock, SystemClock
from rescheduler.observe.events import (
    Compared,
    DrainEnded,
    DrainStarted,
    Event,
    Overviewed,
    Planned,
    RoundEnded,
    Surveyed,
)
from rescheduler.observe.status import Board, Status, StatusJson, unjudged, verdicts
from rescheduler.pages.element import Markup, document, element, joined, table
from rescheduler.pages.nodes import NodeEntry, node_list, search_tools
from rescheduler.pages.plan_tree import commands, headline, levers, reasons, sums
from rescheduler.pages.tree import PagePart
from rescheduler.pages.tree_html import contents
from rescheduler.planning.forms import age, count, money, utc
from rescheduler.planning.money.worth import saves, summed
from rescheduler.planning.outcome import Planning

# Render metrics in the formats of Prometheus. The text of a metric object that was rendered before is reused.
#
# A collector can have a series for each node, and nodes rarely change between two scrapes.

#: The last line of OpenMetrics.
_END: Final = b"# EOF\n"


#: The formats that are written: by content type, an Accept header that requests it.
_FORMATS: Final = {
    choose_encoder(accept)[1]: accept
    for accept in (
        "",
        "application/openmetrics-text",
        *(
            f"{kind};version=1.0.0;escaping={escaping}"
            for kind in ("application/openmetrics-text", "text/plain")
            for escaping in ("allow-utf-8", "underscores", "dots", "values")
        ),
    )
}

_LONGEST_ACCEPT: Final = 1000  #: characters that are read of an Accept header


def format_of(accept: str) -> str:
    """Return the Accept header in `_FORMATS` for what *accept* requests: plain text for versions that do not exist.

    The library repeats any version in the content type, of which texts are kept, and fails for one that is no number.
    """
    try:
        return _FORMATS.get(choose_encoder(accept[:_LONGEST_ACCEPT])[1], "")
    except TypeError:
        return ""


def content_type_of(accept: str) -> str:
    """Return the content type of the response to a request with this Accept header."""
    return choose_encoder(accept)[1]


class Exposition:
    """Renders the metrics of a registry. Thread-safe."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._last: Sequence[Metric] = ()
        self._texts: dict[tuple[int, str], bytes] = {}  # of metrics in _last that were collected twice

    def render(self, accept: str) -> bytes:
        """Return the current metrics in the format that the Accept header *accept* requests."""
        metrics = list(self._registry.collect())
        with self._lock:
            known = {id(metric) for metric in self._last}
            reused = [metric for metric in metrics if id(metric) in known]
            ids = {id(metric) for metric in reused}
            self._texts = {key: text for key, text in self._texts.items() if key[0] in ids}
            self._last = metrics  # keeps them alive, so that no other metric gets the same id
            texts = [_encoded([metric for metric in metrics if id(metric) not in known], accept)]
            texts += [self._text(metric, accept) for metric in reused]
        end = _END if any(text.endswith(_END) for text in texts) else b""
        return b"".join(text.removesuffix(_END) for text in texts) + end

    def _text(self, metric: Metric, accept: str) -> bytes:
        key = id(metric), content_type_of(accept)
        if (text := self._texts.get(key)) is None:
            text = self._texts[key] = _encoded([metric], accept)
        return text


class _CollectedMetrics:
    """Metrics to encode, with the interface of a registry."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _encoded(metrics: Sequence[Metric], accept: str) -> bytes:
    text: bytes = choose_encoder(accept)[0](cast("CollectorRegistry", _CollectedMetrics(metrics)))
    return text


# The status page: the board of the daemon as HTML that updates itself.

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


class StatusPage:
    """Renders boards. The list of nodes is rendered again only for a new plan. Not thread-safe."""

    def __init__(self) -> None:
        self._nodes = Markup("")
        self._shown: tuple[object, ...] | None = None  # the inputs from which the list was rendered

    def as_html(self, board: Board) -> str:
        """Return the page for *board*. All values from the cluster are escaped."""
        header = element(
            "header",
            element("a", "Skip to the nodes", href="#nodes", class_="skip"),
            element("h1", "spot-rescheduler"),
            element("p", id="connection", role="status", aria_live="polite", class_="no"),
            _part("drain", joined(_running(board))),
            _part("state", joined(_state(board))),
        )
        main = element(
            "main",
            element("section", _heading("sums", "Summary"), _part("sums", _sums(board))),
            element("section", _heading("reasons", "What stands in the way"), _part("reasons", _reasons(board))),
            element("section", _heading("levers", "Levers"), _part("levers", _levers(board))),
            element("section", _heading("nodes", "On-demand nodes"), search_tools(), self._node_part(board)),
            element("section", _heading("pools", "Spot pools"), _part("pools", _pools(board))),
            element("section", _heading("drains", "Drains"), _part("drains", _drains(board))),
        )
        return document("spot-rescheduler", element("div", header, main), live=True)

    def _node_part(self, board: Board) -> Markup:
        if (planned := board.planned) is None:
            return _part("nodes", element("p", "No plan yet."))
        cooling = board.observed.cooling if board.observed else {}
        ages = [age(facts.created, planned.at) for facts in planned.facts.values()]
        draining = board.draining.node.name if board.draining else ""
        rendered_from = planned.planning, planned.facts, cooling, board.prices, ages, unjudged(board), draining
        if self._shown is None or self._shown[0] is not planned.planning or self._shown[1:] != rendered_from[1:]:
            judged = verdicts(board) or planned
            self._nodes, self._shown = _part("nodes", _nodes(board, judged)), rendered_from
        return self._nodes


def _part(name: str, content: Markup) -> Markup:
    """Return a part of the page that the browser replaces when its content has changed."""
    return element("div", content, id=name, data_part=f"{zlib.crc32(content.encode()):x}")


def _heading(name: str, text: str) -> Markup:
    return element("h2", text, id=f"{name}-heading")


def _state(board: Board) -> Iterator[Markup]:
    if board.held:
        yield element(
            "p", element("code", board.held.waiting), f" Nothing is drained: {board.held.detail}.", class_="notice"
        )
    if board.draining:
        yield element("p", "Draining ", element("code", board.draining.node.name), ".")
    if board.overviewed is not None:
        yield element("p", headline(board.overviewed.overview), class_="first")
        yield element("p", "Plan of all drains in sequence, of ", _moment(board.overviewed.at), ".", class_="soft")
    if (planned := verdicts(board)) is not None:
        yield element("p", _summary(planned), class_=None if board.overviewed else "first")
        yield element("p", "Verdicts of ", _moment(planned.at), ".", class_="soft")
    if board.savings is not None:
        saved = [money(amount, currency) for currency, amount in board.savings.money.items()]
        yield element("p", f"Saved: {', '.join([*saved, f'{board.savings.node_hours:,.0f} node-hours of on-demand'])}.")
    if board.leading is not None:
        yield element("p", _leadership(board), class_="soft")
    if board.started:
        dry = " Dry run: nothing is changed." if board.started.dry_run else ""
        holder = element("code", board.started.holder)
        yield element("p", f"Version {board.started.version}, ", holder, f".{dry}", class_="soft")


def _pools(board: Board) -> Markup:
    if board.observed is None or not board.observed.pools:
        return element("p", "No spot nodes.")
    rows = [
        (
            pool.name,
            f"{pool.nodes:,}",
            f"{pool.losses:,}",
            f"{pool.per_node_hour:.4f}",
            utc(pool.last) if pool.last else "",
            f"not before {utc(pool.settling)}" if pool.settling else "yes",
        )
        for pool in board.observed.pools
    ]
    head = "Pool", "Nodes", "Lost nodes", "Losses per node-hour", "Last loss", "Counts for plans"
    return table("Pools of spot nodes", head, rows, frozenset({1, 2, 3}))


def _leadership(board: Board) -> str:
    if board.leading:
        return "This replica is the leader."
    leader = f" {board.held.leader} is." if board.held and board.held.leader else ""
    return f"This replica is not the leader.{leader}"


def _moment(at: datetime) -> Markup:
    """Return a time in UTC. The page's script adds how long ago it was, every second."""
    text = f"{at:{_TIME}}"
    return element("time", text, datetime=text)


def _summary(planned: Planned) -> str:
    planning = planned.planning
    saved = saves(summed(planned.worths.values()), planned.currency)
    pending = f" {planning.pending}." if str(planning.pending) else ""
    total, spot = count(planning.on_demand_nodes, "on-demand node"), count(planning.spot_nodes, "spot node")
    return (
        f"{len(planning.plans)} of {total} can be drained to {spot}, each by itself, {planning.empty} of them empty"
        f"{f'; it {saved}' if saved else ''}.{pending}"
    )


def _sums(board: Board) -> Markup:
    if board.overviewed is None:
        return element("p", _NO_OVERVIEW)
    return _shown(sums(board.overviewed.overview))


def _reasons(board: Board) -> Markup:
    """Return the nodes that stay, by reason: of the plan in sequence if there is one."""
    planned = verdicts(board)
    planning: Planning | None = planned.planning if planned else None
    if board.overviewed is not None:
        planning = board.overviewed.overview.planning
    return element("p", "No plan yet.") if planning is None else _shown(reasons(planning))


def _shown(part: PagePart | None) -> Markup:
    return element("p", "None.") if part is None else contents(part.content)


#: Before the first round after the page was opened.
_NO_OVERVIEW: Final = (
    "All drains are planned in sequence by the next round in which no drain runs, because somebody looks at this page."
)


def _levers(board: Board) -> Markup:
    if board.overviewed is None:
        return element("p", _NO_OVERVIEW)
    plan = board.overviewed.overview
    part = levers(plan)
    if part is None and not plan.first_spot:
        return joined((contents(commands(plan)), element("p", "No change would free more nodes.")))
    return contents((*commands(plan), *(part.content if part is not None else ())))


def _running(board: Board) -> Iterator[Markup]:
    if (progress := board.progress) is None:
        return
    yield element("h2", f"Drain of {progress.node}")
    states = Counter(state.value for _, state in progress.pods)
    counts = ", ".join(f"{number} {state}" for state, number in states.most_common()) or "no pods"
    yield element("p", f"Phase: {progress.phase}. Pods: {counts}.")
    rows = [
        (
            str(pod),
            state.value,
            progress.targets.get(str(pod), ""),
            _moment(progress.since[str(pod)]) if str(pod) in progress.since else "",
        )
        for pod, state in progress.pods
    ]
    yield table("Pods of the drain", ("Pod", "State", "Planned to", "Since"), rows, frozenset())


def _nodes(board: Board, planned: Planned) -> Markup:
    cooling = board.observed.cooling if board.observed else {}
    entries = [
        NodeEntry(
            verdict,
            planned.facts.get(verdict.node),
            f"Cools down until {cooling[verdict.node]:{_TIME}}." if verdict.node in cooling else "",
            draining=board.draining is not None and board.draining.node.name == verdict.node,
        )
        for verdict in planned.planning.verdicts
    ]
    return node_list(entries, board.prices, planned.at, unjudged(board))


def _drains(board: Board) -> Markup:
    head = ("When", "Node", "Result", "Pods evicted", "Seconds", "Replacement pods", "Reason")
    rows = [_drain(drain, board.landings.get((drain.node.name, drain.at))) for drain in board.drains]
    return table("Recent drains, the most recent first", head, rows, frozenset({3, 4}))


def _drain(event: DrainEnded, landing: Compared | None) -> tuple[str | Markup, ...]:
    result = element("span", "failed", class_="no") if event.failure else element("span", "done", class_="yes")
    why = joined((element("code", event.failure.why), " ", event.failure.detail)) if event.failure else ""
    seconds = f"{event.seconds:.1f}"
    return (
        f"{event.at:{_TIME}}",
        event.node.name,
        result,
        str(len(event.evicted)),
        seconds,
        _landed(event, landing),
        why,
    )


def _landed(event: DrainEnded, landing: Compared | None) -> str:
    ready = "" if event.landing_seconds is None else f"ready after {event.landing_seconds:.1f} s"
    counts = (
        [f"{number} {outcome}" for outcome, number in sorted(landing.outcomes.items()) if number] if landing else []
    )
    return "; ".join(filter(None, [ready, ", ".join(counts)]))


# Pages that are rendered before they are requested: at the end of each round, as long as clients request them.

#: How long a rendered page is served after the board has changed, in seconds.
_PAGE_SECONDS: Final = 1.0

#: The same for prepared pages and metrics: longer than the default interval between rounds.
PREPARED_SECONDS: Final = 15.0

#: A page is prepared for this many seconds after it was last requested.
_REQUESTED_SECONDS: Final = 120.0

#: During a drain, metrics are rendered again at most once in this many seconds.
_DRAIN_SECONDS: Final = 1.0


class Rendered:
    """A page of the status board. Requests get the last rendered page if it is at most :attr:`patience` seconds old."""

    def __init__(self, status: Status, render: Callable[[Board], bytes], clock: Clock | None = None) -> None:
        self.patience = _PAGE_SECONDS
        self._status, self._render, self._clock = status, render, clock or SystemClock()
        self._lock = threading.Lock()
        self._board: Board | None = None
        self._page = b"", ""
        self._rendered_at = 0.0
        self._requested_at: float | None = None

    def cached(self) -> tuple[bytes, str] | None:
        """Return the rendered page if it may still be served, or while a new one is rendered; otherwise None."""
        self._requested_at = self._clock.monotonic()
        if self._board is None:
            return None
        current = self._board is self._status.board or self._requested_at < self._rendered_at + self.patience
        return self._page if current or self._lock.locked() else None

    def current(self) -> tuple[bytes, str]:
        """Return the current page and its entity tag, or the rendered ones if they may still be served."""
        with self._lock:
            if self._board is None or self._clock.monotonic() >= self._rendered_at + self.patience:
                self._update()
            return self._page

    @property
    def is_read(self) -> bool:
        """Whether the page was requested recently."""
        return _is_recent(self._requested_at, self._clock)

    def prepare(self) -> None:
        """Render the current page if it was requested recently."""
        if self.is_read:
            with self._lock:
                self._update()

    def _update(self) -> None:
        board = self._status.board
        if board is not self._board:
            content = self._render(board)
            self._page = content, f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
            self._board, self._rendered_at = board, self._clock.monotonic()


class RenderedMetrics:
    """The rendered metrics in each format that was requested. Thread-safe."""

    def __init__(self, registry: CollectorRegistry, clock: Clock | None = None, keep: float = PREPARED_SECONDS) -> None:
        """Create the cache. *keep* is how long rendered metrics are served, in seconds."""
        self._exposition, self._clock, self._keep = Exposition(registry), clock or SystemClock(), keep
        self._texts: dict[str, tuple[bytes, float]] = {}  # by format, the text and when it was rendered
        self._requested_at: dict[str, float] = {}  # by format

    def cached(self, accept: str) -> tuple[bytes, str] | None:
        """Return the rendered metrics and their content type, or None if they are too old."""
        wanted, now = format_of(accept), self._clock.monotonic()
        self._requested_at[wanted] = now
        text, at = self._texts.get(wanted, (b"", 0.0))
        return (text, content_type_of(wanted)) if text and now < at + self._keep else None

    def current(self, accept: str) -> tuple[bytes, str]:
        """Render the metrics now. Return them with their content type."""
        wanted, at = format_of(accept), self._clock.monotonic()
        text = self._exposition.render(wanted)
        if self._keep:
            self._texts[wanted] = text, at
        return text, content_type_of(wanted)

    def prepare(self, least_age: float = 0.0) -> None:
        """Render the metrics in formats that were requested recently, if they are at least *least_age* seconds old."""
        for wanted, (_, at) in list(self._texts.items()):
            if not _is_recent(self._requested_at.get(wanted), self._clock):
                del self._texts[wanted]
            elif self._clock.monotonic() - at >= least_age:
                self.current(wanted)


class PreparedPages:
    """A listener that prepares the pages. It must be notified after the listeners that it renders.

    Between drains, requests get the pages of the last round. During a drain, which has no rounds, status pages are
    rendered on request, and metrics at most once a second.
    """

    def __init__(self, registry: CollectorRegistry, status: Status, clock: Clock | None = None) -> None:
        page, plain = StatusPage(), StatusJson()
        self.metrics = RenderedMetrics(registry, clock)
        self.html = Rendered(status, lambda board: page.as_html(board).encode(), clock)
        self.plain = Rendered(status, plain.as_bytes, clock)
        self._draining = False

    def are_read(self) -> bool:
        """Return whether somebody requested the status page recently."""
        return self.html.is_read or self.plain.is_read

    def __call__(self, event: Event) -> None:
        if isinstance(event, DrainStarted):
            self._draining = True
        elif isinstance(event, RoundEnded):
            self._draining = False
        self.html.patience = self.plain.patience = _PAGE_SECONDS if self._draining else PREPARED_SECONDS
        if isinstance(event, Planned | Surveyed | Overviewed | RoundEnded):
            self.html.prepare()
            self.plain.prepare()
        if isinstance(event, RoundEnded):
            self.metrics.prepare()
        elif self._draining:
            self.metrics.prepare(_DRAIN_SECONDS)


def _is_recent(requested_at: float | None, clock: Clock) -> bool:
    return requested_at is not None and clock.monotonic() - requested_at < _REQUESTED_SECONDS
