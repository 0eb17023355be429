"""The entry points: ``python -m rescheduler``, and the programs that are installed.

An interrupt ends them with exit code 130, also while modules are imported and while the interpreter exits. Until the
handler is installed, an interrupt is a traceback of the interpreter, so nothing is imported before that takes time.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from types import FrameType
else:
    import _signal as signal  # the module without its enums, which take longer to import than everything else here


def main() -> None:
    """Run the command of the command line, and exit."""
    _run("main")


def k8s_spot_rescheduler() -> None:
    """Run ``run`` with the defaults of k8s-spot-rescheduler, and exit."""
    _run("k8s_spot_rescheduler")


def _run(function: str) -> None:
    """Call the function with this name in :mod:`rescheduler.cli`. Within it, Ctrl-C raises KeyboardInterrupt."""
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # as in the background of a shell
    try:
        _on_interrupt(_exit_at_once, ignored=ignored)
        from rescheduler import cli  # noqa: PLC0415 - an interrupt during the import is no traceback

        _on_interrupt(signal.default_int_handler, ignored=ignored)
        try:
            getattr(cli, function)()
        finally:
            _on_interrupt(_exit_at_once, ignored=ignored)
    except KeyboardInterrupt:
        os._exit(130)


def _on_interrupt(handler: "signal._HANDLER", *, ignored: bool) -> None:
    if not ignored:
        signal.signal(signal.SIGINT, handler)


def _exit_at_once(_: int, __: "FrameType | None") -> None:
    os._exit(130)


if __name__ == "__main__":
    main()
