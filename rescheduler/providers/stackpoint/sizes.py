"""The CPUs and memory of StackPointCloud's sizes, for pools that do not report them."""

import re
from collections.abc import Callable

_GCE = re.compile(r"n1-(standard|highmem|highcpu)-([0-9]+)")
_GCE_MEMORY = {"standard": 3750, "highmem": 6500, "highcpu": 900}
_GCE_CPUS = {
    "standard": {1, 2, 4, 8, 16, 32, 64},
    "highmem": {2, 4, 8, 16, 32, 64},
    "highcpu": {2, 4, 8, 16, 32, 64},
}


def _table(text: str) -> dict[str, tuple[int, int]]:
    """Parse rows of ``name cpus memory``, in thousands of MB, separated by semicolons."""
    rows = (row.split() for row in text.split(";"))
    return {name: (int(cpus), round(float(memory) * 1000)) for name, cpus, memory in rows}


_SIZES = (
    # AWS
    _table("t2.medium 2 4; t2.large 2 8; t2.xlarge 4 16; t2.2xlarge 8 32")
    | _table("c4.large 2 3.75; c4.xlarge 4 7.5; c4.2xlarge 8 15; c4.4xlarge 16 30; c4.8xlarge 36 60")
    | _table("m3.large 2 7.5; m3.xlarge 4 15; m3.2xlarge 8 30; m4.large 2 8; m4.xlarge 4 16; m4.2xlarge 8 32")
    | _table("m4.4xlarge 16 64; m4.10xlarge 40 160; m4.16xlarge 64 256")
    # DigitalOcean
    | _table("2gb 2 2; 4gb 2 4; 8gb 4 8; 16gb 8 16; 32gb 12 32; 48gb 16 32; 64gb 20 64")
    | _table("c-2 2 3; c-4 4 6; c-8 8 12; c-16 16 32; c-32 32 64")
    | _table("m-16gb 2 16; m-32gb 4 32; m-64gb 8 64; m-128gb 16 128; m-224gb 32 224")
    # others
    | _table("m 1 2; l 2 2; xl 2 4; xxl 4 8; 3xl 8 16; 4xl 12 32; 2,intel_xeon,4096,50,ssd 2 4")
)
_AZURE = (
    _table("a2 2 3.5; a3 4 7; a4 8 14; a5 2 14; a6 4 28; a7 8 56; a8 8 56; a9 16 112; a10 8 56; a11 16 112")
    | _table("a2_v2 2 4; a4_v2 4 8; a8_v2 8 16; a2m_v2 2 16; a4m_v2 4 32; a8m_v2 8 64")
    | _table("d1 1 3.5; d2 2 7; d3 4 14; d4 8 28; d5 16 56; d11 2 14; d12 4 28; d13 8 56; d14 16 112; d15 20 140")
    | _table("f1 1 2; f2 2 4; f4 4 8; f8 8 16; f16 16 32; g1 2 28; g2 4 56; g3 8 112; g4 16 224; g5 32 448")
)
_AZURE_NAME = re.compile(r"(?:standard|basic)_(d|f|g)(s?)([0-9]+)(s?)(_v2)?")


def of(size: str) -> tuple[int, int] | None:
    """Return the CPUs and MB (here 2^20 bytes, that is, Mi) of a size; `None` if the size is unknown."""
    name = size.lower()
    readers: tuple[Callable[[str], tuple[int, int] | None], ...] = (_SIZES.get, _gce, _azure)
    return next((amounts for reader in readers if (amounts := reader(name))), None)


def _gce(name: str) -> tuple[int, int] | None:
    match = _GCE.fullmatch(name)
    if match is None or int(match[2]) not in _GCE_CPUS[match[1]]:
        return None
    return int(match[2]), int(match[2]) * _GCE_MEMORY[match[1]]


def _azure(name: str) -> tuple[int, int] | None:
    match = _AZURE_NAME.fullmatch(name)
    if match:
        return _AZURE.get(match[1] + match[3])
    family, _, bare = name.partition("_")
    return _AZURE.get(bare) if family in {"standard", "basic"} else None
