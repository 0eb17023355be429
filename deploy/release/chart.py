"""The chart as Helm packs it, a gzipped tar of its folder; the same bytes for the same content and version."""

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
    """Write NAME-VERSION.tgz into *target*, with *version* as the chart's and the application's.

    *epoch* is the time of every entry, in seconds. Raises ReleaseError for a folder that is no chart.
    """
    entries = {f"{folder.name}/{file.relative_to(folder)}": file for file in folder.rglob("*") if file.is_file()}
    chart = f"{folder.name}/Chart.yaml"
    if chart not in entries:
        raise ReleaseError(f"{folder}: no chart, it has no Chart.yaml")
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
    """The text of Chart.yaml with *version*. Raises ReleaseError where it has not one line for each key."""
    for key in _STAMPED:
        chart, count = re.subn(rf"^{key}:.*$", f'{key}: "{version}"', chart, flags=re.MULTILINE)
        if count != 1:
            raise ReleaseError(f"Chart.yaml: expected one line {key}, there are {count}")
    return chart
