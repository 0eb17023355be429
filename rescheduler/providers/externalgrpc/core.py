"""The message classes of ``core.proto``: template nodes and priced pods in protobuf. Types are in ``core.pyi``."""

from google.protobuf.message_factory import GetMessageClass

from rescheduler.providers.externalgrpc.wire import POOL

_MESSAGES = POOL.FindFileByName("core.proto").message_types_by_name
globals().update({name: GetMessageClass(message) for name, message in _MESSAGES.items()})
