"""The version of this program, as it was installed."""

import importlib.metadata
from typing import Final


def _installed() -> str:
    try:
        return importlib.metadata.version("spot-rescheduler")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"  # run from a tree that was not installed


VERSION: Final = _installed()
