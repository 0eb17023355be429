"""ImageLocality: prefer nodes that already have the pod's images (``imagelocality/image_locality.go``)."""

from typing import Final

import numpy as np

from predicates.indexes.images import Images
from predicates.nodes import Numbers
from predicates.scores.frame import MAX_SCORE, ScoringRequest
from predicates.versions import Rule

_MEGABYTE: Final = 1024 * 1024
_MIN_THRESHOLD: Final = 23 * _MEGABYTE  #: total bytes up to which the score is 0
_MAX_CONTAINER_THRESHOLD: Final = 1000 * _MEGABYTE  #: bytes per container from which the score is MAX_SCORE


def score(request: ScoringRequest) -> Numbers | None:
    """Return the scores, or None if no node has any of the images.

    The size of an image is scaled by the share of nodes that have it.
    """
    images = request.snapshot.index(Images).sync()
    spec = request.pod.spec
    containers = (*spec.init_containers, *spec.containers)
    names = [container.image for container in containers]
    if request.snapshot.scheduler.version.has(Rule.IMAGE_VOLUMES_SCORE):
        names += [volume.image.reference for volume in spec.volumes if volume.image is not None]
    sum_scores: Numbers | None = None
    for name in names:
        if (weights := images.weights(normalized_image_name(name))) is not None:
            scaled = weights.take(request.rows)
            sum_scores = scaled if sum_scores is None else sum_scores + scaled
    if sum_scores is None:
        return None
    max_threshold = _MAX_CONTAINER_THRESHOLD * len(containers)
    clipped = np.clip(sum_scores, _MIN_THRESHOLD, max_threshold)
    scores: Numbers = MAX_SCORE * (clipped - _MIN_THRESHOLD) // (max_threshold - _MIN_THRESHOLD)
    return scores


def normalized_image_name(image: str) -> str:
    """Return the image name with its tag, as nodes report it (``normalizedImageName``)."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
