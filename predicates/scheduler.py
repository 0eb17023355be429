"""The cluster's kube-scheduler: its version, and its profiles by ``schedulerName``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from predicates.versions import NEWEST, WEIGHTS, SchedulerVersion

DEFAULT_NAME: Final = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile (``KubeSchedulerProfile``): the plugins that run for pods with its name, and their arguments."""

    version: SchedulerVersion
    filters: tuple[str, ...]  #: the filter plugins, in order
    weights: tuple[tuple[str, int], ...]  #: the score plugins
    name: str = DEFAULT_NAME
    volume_shape: tuple[tuple[int, int], ...] = ()  #: of VolumeBinding, with scores up to 100; empty: the default


def default_profile(version: SchedulerVersion) -> Profile:
    """Return the profile of a scheduler of *version* without a configuration."""
    return Profile(version, version.plugins, tuple(WEIGHTS.items()))


class Scheduler:
    """The rules by which the cluster's pods are scheduled. Two schedulers with the same rules are equal."""

    __slots__ = ("_by_name", "default", "profiles", "version")

    def __init__(self, version: SchedulerVersion = NEWEST, profiles: Sequence[Profile] = ()) -> None:
        self.version = version
        self.profiles = tuple(profiles) or (default_profile(version),)
        self._by_name = {profile.name: profile for profile in self.profiles}
        self.default = self._by_name.get(DEFAULT_NAME) or default_profile(version)

    def profile(self, scheduler_name: str) -> Profile:
        """Return the profile for pods with *scheduler_name*; the default profile for pods of other schedulers."""
        return self._by_name.get(scheduler_name, self.default)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scheduler) and (self.version, self.profiles) == (other.version, other.profiles)

    def __hash__(self) -> int:
        return hash((self.version, self.profiles))
