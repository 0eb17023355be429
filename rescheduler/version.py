"""The installed version of this program."""

import importlib.metadata
from typing import Final


def _installed() -> str:
    try:
        return importlib.metadata.version("spot-rescheduler")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"  # run from a source tree that is not installed


VERSION: Final = _installed()
