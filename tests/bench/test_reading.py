"""The programs that the benchmark of reading starts still call the commands' code as the commands do."""

import subprocess
import sys
from pathlib import Path

from tests.bench.reading import OURS, ROOT


def test_our_program_reads_the_kubeconfig_that_it_is_given(tmp_path: Path) -> None:
    missing = tmp_path / "kubeconfig"
    command = [sys.executable, "-c", OURS, str(missing)]
    ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.stderr.splitlines()[-1] == f"rescheduler.errors.UsageError: kubeconfig {missing}: no such file"
