"""The message classes of ``schema.proto``, made from its compiled form ``schema.binpb``.

Not from Python code that protoc writes: such code refuses every runtime of an older major version than its
compiler, and other packages in the same environment may need one. ``schema.pyi`` tells the types.
"""

import importlib.resources

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass


def _classes() -> dict[str, type]:
    compiled = importlib.resources.files(__package__).joinpath("schema.binpb").read_bytes()
    pool = DescriptorPool()
    [file] = FileDescriptorSet.FromString(compiled).file
    pool.Add(file)
    messages = pool.FindFileByName(file.name).message_types_by_name
    return {name: GetMessageClass(message) for name, message in messages.items()}


globals().update(_classes())
