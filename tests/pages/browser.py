"""A headless Chromium for tests, the benchmark and the screenshots."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from devcluster.debian import chromium


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium and stop it at the end. Raises SetupError if it cannot be downloaded.

    It runs without its sandbox, which does not work for root or in containers; it loads only pages of this project.
    """
    program = chromium()
    environment: dict[str, str | float | bool] = {**os.environ, **program.environment}
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program.program, env=environment, chromium_sandbox=False)
        try:
            yield started
        finally:
            started.close()
