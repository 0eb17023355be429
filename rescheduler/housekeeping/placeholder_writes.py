"""Create and delete the placeholders of orders."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from predicates.objects import Pod
from predicates.placeholders import ROOM_NAMESPACE
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, NotFound, Permanent, ReschedulerError
from rescheduler.execution.context import PlaceholderApi
from rescheduler.execution.room_view import RoomView
from rescheduler.observe.events import ErrorKind, Report, Trouble
from rescheduler.planning.room.manifests import OrderTerms, label_keys_of, manifest, why_not_served
from rescheduler.planning.room.placeholders import Placeholder
from rescheduler.settings import RoomSettings

#: Seconds after a failed deletion until the next attempt.
_RETRY_SECONDS: Final = 30.0

_COMPONENT: Final = "deploy/components/make-room contains the namespace, the PriorityClass and the permissions"


class PlaceholderWrites:
    """The writes to placeholders of one installation. Used by the loop's thread only."""

    def __init__(
        self,
        api: PlaceholderApi,
        view: RoomView,
        settings: RoomSettings,
        identity: str,
        clock: Clock,
        report: Report,
    ) -> None:
        self._api = api
        self._view = view
        self._settings = settings
        self._identity = identity
        self._clock = clock
        self._report = report
        self._deleted: frozenset[str] = frozenset()  # UIDs of placeholders that the watch may still report
        self._retry_at = clock.monotonic()

    def remaining(self, placeholders: Iterable[Placeholder]) -> list[Placeholder]:
        """Return the *placeholders* that are not being deleted."""
        return [
            placeholder
            for placeholder in placeholders
            if not placeholder.leaving and placeholder.ref.uid not in self._deleted
        ]

    def why_not(self) -> str:
        """Return why placeholders cannot be created, or ""."""
        if self._view.namespace_uid(ROOM_NAMESPACE):
            return ""
        return f"namespace {ROOM_NAMESPACE} does not exist; {_COMPONENT}"

    def serves(self, pods: Collection[Pod], total: int) -> bool:
        """Return whether placeholders can represent *pods*, and an order may have *total* placeholders."""
        return total <= self._settings.most and not any(why_not_served(pod.cls) for pod in pods)

    def create(self, pods: Collection[Pod], node: str, until: datetime) -> None:
        """Create placeholders for *pods* of *node*.

        Raises Permanent with advice if the API server rejects them, and the errors of requests.
        """
        known = self._view.node(node)
        assert known is not None
        terms = OrderTerms(
            self._identity,
            self._view.spot_label,
            until,
            known.metadata.uid,
            self._view.namespace_uid(ROOM_NAMESPACE),
            self._settings.image,
            self._settings.life_seconds,
        )
        keys = label_keys_of(pod.cls for pod in self._view.must_move(node))
        for pod in pods:
            try:
                self._api.create(manifest(pod, terms, self._view.volume_terms(pod), keys))
            except (Forbidden, NotFound) as error:
                raise Permanent(f"{error}; {_COMPONENT}") from error

    def delete(self, placeholders: Collection[Placeholder]) -> list[Placeholder]:
        """Delete *placeholders* unless a recent attempt failed. Return the placeholders that were deleted now.

        Raises the errors of requests.
        """
        if self._clock.monotonic() < self._retry_at:
            return []
        new = self.remaining(placeholders)
        for placeholder in new:
            self._api.delete(placeholder.ref)
            self._deleted |= {placeholder.ref.uid}
        present = {placeholder.ref.uid for placeholder in self._view.placeholders()}
        self._deleted &= present
        return new

    def failed(self, error: ReschedulerError, node: str) -> None:
        """Report that placeholders could not be deleted. The next attempt is made later."""
        self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
        self._report(Trouble(ErrorKind.WRITE, f"placeholders could not be deleted: {error}; {_COMPONENT}", node))
