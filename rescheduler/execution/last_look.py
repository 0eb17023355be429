"""Read the cluster consistently before each request that could end a machine.

:mod:`rescheduler.planning.last_look` decides whether the request may be sent.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from predicates.objects import Node, OwnerReference
from rescheduler.errors import NotFound, ReschedulerError, Withheld
from rescheduler.execution.context import DrainContext
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import count_replicas
from rescheduler.planning.last_look import Ground, Objection, OrderTerms, Seen, objection
from rescheduler.providers.base import NodeRef


class LastLook:
    """The checks of one order for the machine of *node*. Providers call it before each request.

    *not_ours* returns why annotations do not carry our mark, or "". *siblings* are owners of other pods; ReplicaSets
    among them may belong to the same controllers.
    """

    def __init__(
        self,
        access: DrainContext,
        node: Node,
        terms: OrderTerms,
        not_ours: Callable[[Mapping[str, str]], str],
        siblings: Collection[tuple[str, OwnerReference]],
    ) -> None:
        self._access = access
        self._node = node
        self._terms = terms
        self._not_ours = not_ours
        self._siblings = siblings
        self.allowed = 0  #: how often the order was allowed
        self.objection: Objection | None = None  #: of the last check
        self.unread = ""  #: the error of the last check, if the cluster could not be read
        self.gone = ""  #: why the Node does not exist any more, according to the last check
        self.leadership_lost = False

    def __call__(self, _: NodeRef) -> None:
        """Raise Withheld if the machine may not end now, or the error of a read."""
        self.objection, self.gone, self.unread = None, "", ""
        if not self._access.leads():
            self.leadership_lost = True
            raise Withheld("another replica leads")
        try:
            self.objection = self._object()
        except Withheld:
            raise
        except ReschedulerError as error:
            self.unread = str(error)
            raise
        if self.objection is not None:
            raise Withheld(self.objection.why)
        self.allowed += 1

    def _object(self) -> Objection | None:
        cluster, terms, name = self._access.cluster, self._terms, self._node.name
        try:
            node = cluster.node(name)
        except NotFound as error:
            self.gone = str(error)
            raise Withheld(self.gone) from error
        if node.metadata.uid != self._node.metadata.uid:
            self.gone = f"node {name} was replaced by another node of the same name"
            raise Withheld(self.gone)
        if why := self._not_ours(node.metadata.annotations):
            return Objection(Ground.MARK, why)
        if terms.doubt:
            return Objection(Ground.DOUBT, terms.doubt)
        states = self._states()
        namespaces = {debt.controller.namespace for debt in terms.debts}
        pods = cluster.pods(name, namespaces)
        minimum = terms.policy is not None and terms.policy.min_on_demand_nodes > 0
        return objection(
            self._node,
            terms,
            Seen(
                node=node,
                pods=[pod for pod in pods if pod.node_name == name],
                nodes=cluster.nodes() if minimum else (),
                states=states,
                replicas=count_replicas(
                    pods, states.values(), name, evicted=terms.evicted, now=self._access.clock.now()
                ),
            ),
        )

    def _states(self) -> dict[Controller, ControllerState]:
        controllers = frozenset(debt.controller for debt in self._terms.debts)
        if not controllers:
            return {}
        states = dict(self._access.controllers.read((), controllers, self._siblings).states)
        for debt in self._terms.debts:
            state = states[debt.controller]
            states[debt.controller] = replace(state, owner_uids=state.owner_uids.union(debt.owner_uids))
        return states
