"""Package the chart like Helm, as a gzipped tar of its folder. The output is reproducible."""

import gzip
import io
import re
import tarfile
from pathlib import Path
from typing import Final

from deploy.release.errors import ReleaseError

_STAMPED: Final = ("version", "appVersion")
_MODE: Final = 0o644


def pack(folder: Path, version: str, epoch: int, target: Path) -> Path:
    """Write NAME-VERSION.tgz to *target* and return its path. The chart and the application get the same *version*.

    *epoch* is the modification time of every entry, in Unix seconds. Raises ReleaseError if *folder* is not a chart.
    """
    entries = {f"{folder.name}/{file.relative_to(folder)}": file for file in folder.rglob("*") if file.is_file()}
    chart = f"{folder.name}/Chart.yaml"
    if chart not in entries:
        raise ReleaseError(f"{folder}: expected a chart, but there is no Chart.yaml")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in (chart, *sorted(entries.keys() - {chart})):  # Helm reads Chart.yaml first
            content = entries[name].read_bytes()
            if name == chart:
                content = stamped(content.decode(), version).encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), epoch, _MODE
            archive.addfile(entry, io.BytesIO(content))
    path = target / f"{folder.name}-{version}.tgz"
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return path


def stamped(chart: str, version: str) -> str:
    """Return the text of Chart.yaml with *version*. Raises ReleaseError unless it has exactly one line for each key."""
    for key in _STAMPED:
        chart, count = re.subn(rf"^{key}:.*$", f'{key}: "{version}"', chart, flags=re.MULTILINE)
        if count != 1:
            raise ReleaseError(f"Chart.yaml: expected one line with the key {key}, got {count}")
    return chart
