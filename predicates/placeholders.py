"""Placeholders: pods of this program that keep room on spot nodes until the pods that need it arrive.

A snapshot keeps them apart from all other pods: they are not load, and they do not wait for room.
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
