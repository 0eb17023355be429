"""The errors that the verbs of a cloud provider raise, with their gRPC status."""

from rescheduler import errors
from rescheduler.providers.delete_outcomes import Accepted, DeleteOutcome, Failed, Refusal, Refused


class NotSupported(errors.Permanent):
    """The system does not implement the verb; callers must work without it. (UNIMPLEMENTED)"""


class UnknownGroup(errors.NotFound):
    """The group does not exist. (NOT_FOUND)"""


class BelowMinimum(errors.Permanent):
    """The group would fall below its minimum size, or lose running machines. (FAILED_PRECONDITION)"""


class AboveMaximum(errors.Permanent):
    """The group would exceed its maximum size. (FAILED_PRECONDITION)"""


class NotInGroup(errors.Permanent):
    """The node is not a member of the group, or its membership is uncertain. (INVALID_ARGUMENT)"""


def error_of(node: str, outcome: DeleteOutcome) -> errors.ReschedulerError | None:
    """Convert *outcome* to an error, for callers that return one result for all nodes; `None` for a success."""
    match outcome:
        case Refused(Refusal.BELOW_MINIMUM, detail):
            return BelowMinimum(f"node {node}: {detail}")
        case Refused(Refusal.NOT_IN_GROUP | Refusal.AMBIGUOUS, detail):
            return NotInGroup(f"node {node}: {detail}")
        case Refused(_, detail) | Failed(detail, retryable=False):
            return errors.Permanent(f"node {node}: {detail}")
        case Failed(detail):
            return errors.BackendUnavailable(f"node {node}: {detail}")
        case Accepted(detail):
            return errors.DeadlineExceeded(f"node {node}: {detail}")
    return None
