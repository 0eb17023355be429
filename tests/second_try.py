"""A plugin of pytest for ``make test``: failed tests are run once more, and never in silence.

A test that needs a second try hides something, in the test or in the program. Those that are known are listed in
second_try.txt, at most :data:`MOST`, each with the number of an issue and the reason. All others are named at the end
of the run; with STRICT=1 in the environment they fail it at once.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

LIST: Final = "tests/second_try.txt"
MOST: Final = 5

_LINE: Final = re.compile(r"(?P<test>tests/[\w/]+\.py::[\w:]+): issue (?P<issue>\d+): (?P<reason>\S.{19,})")


def listed(text: str) -> Mapping[str, str]:
    """Return the reasons by test. Raises ValueError for too many and other lines than ``TEST: issue N: REASON``."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = {}
    for line in lines:
        if (match := _LINE.fullmatch(line)) is None:
            raise ValueError(f"{LIST}: {line!r}: expected 'tests/FILE.py::TEST: issue NUMBER: the reason'")
        found[match["test"]] = match["reason"]
    if len(lines) > MOST:
        raise ValueError(f"{LIST}: {len(lines)} tests: expected at most {MOST}; mend one first")
    return found


def unlisted(failed: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Return those of the *failed* tests, with any parameters, that are not *known*."""
    return [test for test in failed if test.partition("[")[0] not in known]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Run the failed tests once more if all are listed, with little beside them. Their result is that of the run."""
    if exitstatus != pytest.ExitCode.TESTS_FAILED or hasattr(session.config, "workerinput"):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    failed = sorted({report.nodeid for kind in ("failed", "error") for report in reporter.stats.get(kind, ())})
    known = listed((session.config.rootpath / LIST).read_text())
    others = unlisted(failed, known)
    if others and os.environ.get("STRICT"):
        reporter.write_line(f"\n{len(others)} of {len(failed)} failed tests are not in {LIST}: no second try")
        return
    reporter.write_line(f"\nrunning {len(failed)} failed tests once more", flush=True)
    again = [sys.executable, "-m", "pytest", "-n", "0", *failed]
    session.exitstatus = subprocess.run(again, cwd=session.config.rootpath, check=False).returncode
    if others and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"\nneeded a second try, and are not in {LIST}:")
        for test in others:
            reporter.write_line(f"  {test}")
