"""The compiled forms of the external gRPC schemas are those of their sources: `make proto`."""

from pathlib import Path

import pytest
from grpc_tools import protoc

from deploy.local import caller
from rescheduler.backends import externalgrpc

OURS, CALLER = Path(externalgrpc.__path__[0]), Path(caller.__path__[0])
COMPILED = {
    OURS / "wire.binpb": ("--include_imports", "wire.proto", "core.proto"),
    CALLER / "calls.binpb": ("calls.proto",),
}


@pytest.mark.parametrize("kept", COMPILED, ids=lambda kept: kept.name)
def test_compiled_form(kept: Path, tmp_path: Path) -> None:
    made = tmp_path / kept.name
    well_known = Path(protoc.__file__).parent / "_proto"
    flags = [f"-I{kept.parent}", f"-I{well_known}", f"--descriptor_set_out={made}"]
    assert protoc.main(["protoc", *flags, *COMPILED[kept]]) == 0
    assert made.read_bytes() == kept.read_bytes()
