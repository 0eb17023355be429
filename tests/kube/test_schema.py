"""The compiled schema matches schema.proto."""

import importlib.resources
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

ROOT = Path(__file__).parents[2]
SOURCE = "rescheduler/kube/schema.proto"


def test_the_compiled_schema_matches_schema_proto(tmp_path: Path) -> None:
    """If this fails, run ``make proto``."""
    compiled = tmp_path / "schema.binpb"
    assert protoc.main(["protoc", f"-I{ROOT}", f"--descriptor_set_out={compiled}", SOURCE]) == 0
    kept = importlib.resources.files("rescheduler.kube").joinpath("schema.binpb").read_bytes()
    assert FileDescriptorSet.FromString(kept) == FileDescriptorSet.FromString(compiled.read_bytes())
