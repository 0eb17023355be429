"""SIGTERM handling for programs that start a control plane."""

import signal
import sys


def exit_on_sigterm() -> None:
    """Make SIGTERM raise SystemExit(1), so that context managers stop the processes that were started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
