"""ImageLocality: the more of the pod's images a node holds, the better (``imagelocality/image_locality.go``)."""

from typing import Final

import numpy as np

from predicates.indexes.images import Images
from predicates.nodes import Numbers
from predicates.scores.frame import MAX_SCORE, Question

_MEGABYTE: Final = 1024 * 1024
_LEAST: Final = 23 * _MEGABYTE  #: bytes that count for nothing
_MOST: Final = 1000 * _MEGABYTE  #: bytes a container past which more counts no more


def score(question: Question) -> Numbers | None:
    """None where no node holds any of the images. An image that few nodes hold counts for less."""
    snapshot, spec = question.snapshot, question.pod.spec
    images = snapshot.index(Images).sync()
    containers = (*spec.init_containers, *spec.containers)
    held: Numbers | None = None
    for one in containers:
        if (found := images.sizes(full_name(one.image), question.rows)) is not None:
            sizes, holders = found
            scaled = (sizes * (holders / len(snapshot.nodes.row))).astype(np.int64)
            held = scaled if held is None else held + scaled
    if held is None:
        return None
    most = _MOST * len(containers)
    scores: Numbers = MAX_SCORE * (np.clip(held, _LEAST, most) - _LEAST) // (most - _LEAST)
    return scores


def full_name(image: str) -> str:
    """The image's name with its tag, as nodes report it."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
