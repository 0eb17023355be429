"""``python -m deploy.release.audit``: compare the pinned packages with the known vulnerabilities of osv.dev."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
LOCKS: Final = ("requirements.lock", "deploy/release/tools.lock")
_UV: Final = Path(sys.executable).with_name("uv")
_TOOL: Final = ("tool", "run", "--quiet", "--from", "pip-audit==2.10.1", "pip-audit", "--vulnerability-service=osv")
_FLAGS: Final = ("--disable-pip", "--require-hashes", "--progress-spinner=off")
#: The errors of the tool, and of its download, on a machine without a network.
_UNREACHABLE: Final = re.compile(r"ConnectionError|ConnectTimeout|ProxyError|dns error|client error \(Connect\)")


def main() -> int:
    """Print the vulnerabilities, and return 1 if there are any. Without a network, print that, and return 0."""
    return max(audit(command(lock)) for lock in LOCKS)


def command(lock: str) -> list[str]:
    """Return the command for one lock: the tool rejects files that both pin a package."""
    return [str(_UV), *_TOOL, *_FLAGS, f"--requirement={_ROOT / lock}"]


def audit(command: Sequence[str]) -> int:
    """Run *command*, and return its exit code."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not done.stdout.strip() and _UNREACHABLE.search(done.stderr):
        print("audit: skipped: the database of vulnerabilities cannot be reached")
        return 0
    print(done.stdout + done.stderr, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
