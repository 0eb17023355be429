"""The loop of all deletions: read the state and send orders until all outcomes are known or the deadline passes."""

from collections.abc import Callable, Mapping, Sequence

from rescheduler import errors
from rescheduler.net.retries import one_attempt
from rescheduler.providers.base import DeleteOutcome, NodeRef, UnknownGroup


def delete_until_confirmed(
    nodes: Sequence[NodeRef],
    advance: Callable[[dict[str, DeleteOutcome]], None],
    wait: Callable[[], bool],
    give_up: Callable[[str], Mapping[str, DeleteOutcome]],
    *,
    is_accepted: Callable[[NodeRef], bool] = lambda _: False,
    is_ordered: Callable[[], bool] = lambda: True,
) -> Mapping[str, DeleteOutcome]:
    """Return the outcome of each node, in order. Errors and timeouts become outcomes.

    *advance* reads the state of the system, sends the requests that are due, and adds the known outcomes to the mapping
    that it is given. It sends each request once; the next call repeats failed requests. *wait* waits until the next
    call; it returns False if there is no time for one. *give_up* returns the outcomes for the nodes that have none,
    given the last error. The loop does not wait for a node for which *is_accepted* is true. UnknownGroup is raised
    unless *is_ordered*, because an exception means that no order can take effect.
    """
    done: dict[str, DeleteOutcome] = {}
    while True:
        last_error = "timed out"
        try:
            with one_attempt():
                advance(done)
        except errors.ReschedulerError as error:
            if isinstance(error, UnknownGroup) and not is_ordered():
                raise
            last_error = str(error)
            if not isinstance(error, errors.Retryable):
                break
        if all(node.name in done or is_accepted(node) for node in nodes) or not wait():
            break
    late = give_up(last_error)
    return {node.name: done.get(node.name) or late[node.name] for node in nodes}
