"""Placeholders: pods that this program creates to reserve room on spot nodes for pods that will move there.

A snapshot stores them separately from all other pods: they use no resources, and they do not count as pending.
"""

from typing import Final

from predicates.objects import Pod

#: The namespace of all placeholders. It contains nothing else.
ROOM_NAMESPACE: Final = "spot-rescheduler-room"

#: The label of placeholders.
PLACEHOLDER: Final = "spot-rescheduler/placeholder"


def is_placeholder(pod: Pod) -> bool:
    """Return whether *pod* is a placeholder."""
    return pod.namespace == ROOM_NAMESPACE and PLACEHOLDER in pod.cls.labels
