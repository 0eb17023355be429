"""The compiled external gRPC schemas match their sources; update them with `make proto`."""

from pathlib import Path

import pytest
from grpc_tools import protoc

from devcluster import caller
from rescheduler.providers import externalgrpc

OURS, CALLER = Path(externalgrpc.__path__[0]), Path(caller.__path__[0])
COMPILED = {
    OURS / "wire.binpb": ("--include_imports", "wire.proto", "core.proto"),
    CALLER / "calls.binpb": ("calls.proto",),
}


@pytest.mark.parametrize("kept", COMPILED, ids=lambda kept: kept.name)
def test_the_compiled_form_is_current(kept: Path, tmp_path: Path) -> None:
    compiled = tmp_path / kept.name
    well_known = Path(protoc.__file__).parent / "_proto"
    flags = [f"-I{kept.parent}", f"-I{well_known}", f"--descriptor_set_out={compiled}"]
    assert protoc.main(["protoc", *flags, *COMPILED[kept]]) == 0
    assert compiled.read_bytes() == kept.read_bytes()
