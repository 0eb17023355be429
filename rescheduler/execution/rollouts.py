"""Perform the actions of a roll-out on its Deployment. Separate from the other actions, which change nodes and pods."""

from datetime import timedelta
from functools import partial
from math import ceil

from rescheduler.clock import Clock
from rescheduler.draining.actions import AskSurge, FollowSurge, ReadSurge, RevertSurge, SurgeMark
from rescheduler.draining.events import Done, NotDone, RolledTemplate, SurgeRead, SurgeReverted, SurgeSeen
from rescheduler.errors import NotFound, ReschedulerError
from rescheduler.execution.context import ActionResult, not_done
from rescheduler.kube.client import retry_on_conflict
from rescheduler.kube.cluster import PATCH_ATTEMPTS
from rescheduler.kube.deployments import Deployments, LiveDeployment
from rescheduler.observe import events
from rescheduler.observe.events import InvolvedNode, SurgeResult
from rescheduler.planning.forms import utc
from rescheduler.planning.outcome import Surge
from rescheduler.planning.surges import is_settled, limits_of, replicas_of, why_downtime, why_no_surge


class Rollouts:
    """The roll-outs of one drain of the node *ref*."""

    def __init__(self, api: Deployments, clock: Clock, ref: InvolvedNode) -> None:
        self._api = api
        self._clock = clock
        self._ref = ref

    def perform(self, action: ReadSurge | AskSurge | FollowSurge | RevertSurge) -> ActionResult:
        """Perform *action* and return its result. Raises NotLeading."""
        try:
            match action:
                case ReadSurge(surge):
                    return ActionResult(self._read(surge))
                case AskSurge(mark):
                    return self._ask(mark)
                case FollowSurge(mark):
                    return ActionResult(self._follow(mark))
                case RevertSurge(mark):
                    return self._revert(mark)
        except ReschedulerError as error:
            return ActionResult(not_done(action, error))

    def _read(self, surge: Surge) -> SurgeRead:
        read = self._api.read(surge.namespace, surge.name)
        wanted = utc(self._clock.now())
        if wanted == read.value:  # the template must change
            wanted = utc(self._clock.now() + timedelta(seconds=1))
        pods = tuple(pod.uid for pod in surge.pods)
        mark = SurgeMark(surge.namespace, surge.name, surge.uid, wanted, read.value, read.digest, pods)
        replicas = replicas_of(read.deployment)
        fault = why_no_surge(read.deployment)
        if read.deployment.metadata.uid != surge.uid:
            fault = f"Deployment {surge} was replaced by another one of the same name"
        elif not fault and replicas > surge.restarts:
            fault = f"Deployment {surge} has {replicas} replicas, and the plan was made for {surge.restarts}"
        steps = ceil(replicas / max(1, limits_of(read.deployment)[0]))  # each of them is progress
        return SurgeRead(mark, fault, float(steps * (read.progress_seconds + read.min_ready_seconds)))

    def _ask(self, mark: SurgeMark) -> ActionResult:
        if why := retry_on_conflict(partial(self._ask_once, mark), PATCH_ATTEMPTS):
            return ActionResult(NotDone(AskSurge, why))
        return ActionResult(Done(AskSurge), (events.SurgeStarted(self._ref, str(mark), len(mark.pods)),))

    def _ask_once(self, mark: SurgeMark) -> str:
        """Change the template unless that was done. Return why it must not be changed, or ""."""
        read = self._api.read(mark.namespace, mark.name)
        state = _template(read, mark)
        if state is RolledTemplate.OURS:
            return ""
        if state is not RolledTemplate.UNTOUCHED:
            return f"Deployment {mark} has changed since it was read: it is left alone"
        if why := why_no_surge(read.deployment):
            return why
        self._api.annotate(read, mark.wanted)
        return ""

    def _follow(self, mark: SurgeMark) -> SurgeSeen:
        try:
            read = self._api.read(mark.namespace, mark.name)
        except NotFound:
            return SurgeSeen(RolledTemplate.GONE)
        template = _template(read, mark)
        if is_settled(read.deployment):
            return SurgeSeen(template, complete=True)
        fault = "it was paused during its roll-out" if read.deployment.spec.paused else read.fault
        return SurgeSeen(template, fault=fault, refusal=read.refusal, downtime=why_downtime(read.deployment))

    def _revert(self, mark: SurgeMark) -> ActionResult:
        try:
            event, wrote = retry_on_conflict(partial(self._revert_once, mark), PATCH_ATTEMPTS)
        except NotFound:
            return ActionResult(SurgeReverted())
        undone = (events.SurgeEnded(self._ref, str(mark), SurgeResult.ROLLED_BACK),) if wrote else ()
        return ActionResult(event, undone)

    def _revert_once(self, mark: SurgeMark) -> tuple[SurgeReverted, bool]:
        """Give the template its old annotation back if it is ours and the roll-out is not complete."""
        read = self._api.read(mark.namespace, mark.name)
        if _template(read, mark) is not RolledTemplate.OURS:
            return SurgeReverted(), False
        if is_settled(read.deployment):
            return SurgeReverted(complete=True), False
        self._api.annotate(read, mark.old)
        return SurgeReverted(), True


def _template(read: LiveDeployment, mark: SurgeMark) -> RolledTemplate:
    if read.deployment.metadata.uid != mark.uid:
        return RolledTemplate.GONE
    if read.digest != mark.template or read.value not in (mark.wanted, mark.old):
        return RolledTemplate.THEIRS
    return RolledTemplate.OURS if read.value == mark.wanted else RolledTemplate.UNTOUCHED
