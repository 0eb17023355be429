"""The message classes of ``wire.proto``, made from its compiled form ``wire.binpb``; ``wire.pyi`` tells the types.

Not from Python code that protoc writes: such code refuses every runtime of an older major version than its
compiler. The classes live in a pool of their own, lest another copy of upstream's file in the process collides.
"""

import importlib.resources

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

POOL = DescriptorPool()


def _classes() -> dict[str, type]:
    compiled = importlib.resources.files(__package__).joinpath("wire.binpb").read_bytes()
    for file in FileDescriptorSet.FromString(compiled).file:
        POOL.Add(file)
    messages = POOL.FindFileByName("wire.proto").message_types_by_name
    return {name: GetMessageClass(message) for name, message in messages.items()}


globals().update(_classes())
