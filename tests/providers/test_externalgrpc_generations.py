"""The service's wire format in both generations of fields: templates, prices, options."""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import grpc
import grpc_tools
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from devcluster import caller
from rescheduler.clock import SystemClock
from rescheduler.grpc_service.service import pod_requests
from rescheduler.providers.base import GroupOptions
from rescheduler.providers.externalgrpc import core, wire
from tests.providers.externalgrpcs import connected, offered
from tests.providers.shelf import Caller, Shelf

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def generations(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the messages of ``calls.proto`` by name; messages that are empty there are as in ``generations.proto``."""
    compiled = tmp_path_factory.mktemp("proto") / "generations.binpb"
    included = Path(grpc_tools.__file__).parent / "_proto"
    here = Path(__file__).parent
    flags = [f"-I{here}", f"-I{included}", "--include_imports", f"--descriptor_set_out={compiled}"]
    assert (
        protoc.main(
            ["protoc", *flags, "google/protobuf/any.proto", "google/protobuf/timestamp.proto", "generations.proto"]
        )
        == 0
    )
    *well_known, filled = FileDescriptorSet.FromString(compiled.read_bytes()).file
    (calls,) = FileDescriptorSet.FromString((Path(caller.__path__[0]) / "calls.binpb").read_bytes()).file
    ours = {message.name for message in filled.message_type}
    kept = [message for message in calls.message_type if message.name not in ours]
    del calls.message_type[:]
    calls.message_type.extend(kept)
    calls.dependency.append(filled.name)
    pool = DescriptorPool()
    for file in (*well_known, filled, calls):
        pool.Add(file)
    return lambda name: GetMessageClass(pool.FindMessageTypeByName(f"calls.{name}"))


def test_both_generations_read_the_template(call: Caller, generations: Any) -> None:
    raw = call.raw("NodeGroupTemplateNodeInfo", wire.NodeGroupTemplateNodeInfoRequest(id="g").SerializeToString())
    old = generations("OldTemplate").FromString(raw).nodeInfo
    new = generations("Node").FromString(generations("NewTemplate").FromString(raw).nodeBytes)
    assert old == new
    assert (dict(new.metadata.labels), new.metadata.name) == ({"zone": "a"}, "template-g")
    assert [(taint.key, taint.value, taint.effect) for taint in new.spec.taints] == [("spot", "yes", "NoSchedule")]
    assert {name: amount.string for name, amount in new.status.capacity.items()} == {"cpu": "4", "memory": "16Gi"}
    assert {name: amount.string for name, amount in new.status.allocatable.items()} == {"cpu": "3900m"}
    assert [(condition.type, condition.status) for condition in new.status.conditions] == [("Ready", "True")]


@pytest.mark.parametrize(
    ("kind", "begin", "end"), [("Old", "startTime", "endTime"), ("New", "startTimestamp", "endTimestamp")]
)
def test_both_generations_request_prices(
    kind: str, begin: str, end: str, call: Caller, shelf: Shelf, generations: Any
) -> None:
    hour = dt.timedelta(hours=1)
    pod = generations("Pod")()
    pod.metadata.name = "p"
    pod.spec.containers.add(name="c").resources.requests["cpu"].string = "250m"
    pod.spec.containers.add(name="d").resources.requests["memory"].string = "1Gi"
    of_node, of_pod = generations(f"{kind}NodePrice")(), generations(f"{kind}PodPrice")()
    of_node.node.name = "template-node-for-g-1"
    if kind == "Old":
        of_pod.pod.CopyFrom(pod)
    else:
        of_pod.pod_bytes = pod.SerializeToString()
    for request in (of_node, of_pod):
        getattr(request, begin).seconds = int(NOON.timestamp())
        getattr(request, end).seconds = int((NOON + hour).timestamp())
    prices = [
        wire.PricingNodePriceResponse.FromString(call.raw("PricingNodePrice", of_node.SerializeToString())).price,
        wire.PricingPodPriceResponse.FromString(call.raw("PricingPodPrice", of_pod.SerializeToString())).price,
    ]
    assert prices == [1.5, 0.25]
    assert shelf.asked == [
        ("template-node-for-g-1", NOON, NOON + hour),
        ({"cpu": Decimal("0.25"), "memory": Decimal(2**30)}, NOON, NOON + hour),
    ]


def test_options_keep_the_defaults_of_the_old_generation(call: Caller, shelf: Shelf, generations: Any) -> None:
    shelf.given = GroupOptions(utilization_threshold=0.75, unneeded_time=dt.timedelta(minutes=2))
    request = generations("OldOptionsOf")(id="g")
    request.defaults.gpu = 0.5
    request.defaults.unneeded.duration = 600 * 10**9
    request.defaults.provision.duration = 900 * 10**9
    raw = call.raw("NodeGroupGetOptions", request.SerializeToString())
    options = generations("OldOptionsAnswer").FromString(raw).options
    assert (options.threshold, options.gpu) == (0.75, 0.5)
    assert (options.unneeded.duration, options.provision.duration) == (120 * 10**9, 900 * 10**9)


def test_options_keep_the_defaults_of_the_new_generation(call: Caller, shelf: Shelf, generations: Any) -> None:
    shelf.given = GroupOptions(unready_time=dt.timedelta(seconds=1.5), zero_or_max_scaling=True)
    request = generations("NewOptionsOf")(id="g")
    request.defaults.threshold, request.defaults.ignoreDaemonSets = 0.5, True
    request.defaults.provision.seconds = 900
    raw = call.raw("NodeGroupGetOptions", request.SerializeToString())
    options = generations("NewOptionsAnswer").FromString(raw).options
    assert (options.threshold, options.zeroOrMax, options.ignoreDaemonSets) == (0.5, True, True)
    assert (options.unready.seconds, options.unready.nanos, options.provision.seconds) == (1, 500_000_000, 900)


def test_options_keep_the_defaults_of_the_newest_releases(call: Caller, shelf: Shelf, generations: Any) -> None:
    request = generations("NewestOptionsOf")(id="g")
    request.defaults.startup.seconds, request.defaults.nonAtomic = 900, True
    given = (GroupOptions(utilization_threshold=0.75), GroupOptions(max_startup_time=dt.timedelta(seconds=60)))
    answers = []
    for shelf.given in (*given, GroupOptions(non_atomic_scale_up=False)):
        raw = call.raw("NodeGroupGetOptions", request.SerializeToString())
        answers.append(generations("NewestOptionsAnswer").FromString(raw).options)
    assert [(options.startup.seconds, options.nonAtomic) for options in answers] == [
        (900, True),
        (60, True),
        (900, False),
    ]


def test_options_pass_through_two_services(shelf: Shelf) -> None:
    """A missing option becomes zero if the protocol cannot represent a missing one, and stays missing otherwise."""
    clock = SystemClock()
    shelf.given = GroupOptions(utilization_threshold=0.5, max_startup_time=dt.timedelta(minutes=1))
    zero: dict[str, Any] = {
        "gpu_utilization_threshold": 0.0,
        "zero_or_max_scaling": False,
        "ignore_daemonsets_utilization": False,
    }
    with offered(shelf, clock) as address, connected(address, clock) as provider:
        assert provider.options("g", deadline=clock.monotonic() + 30) == replace(shelf.given, **zero)


@pytest.mark.parametrize(
    ("kind", "fields", "known"),
    [
        ("Oldest", ("unneeded", "unready"), True),
        ("Old", ("unneeded", "provision"), False),
        ("New", ("provision",), False),
    ],
)
def test_missing_options_are_reported_as_the_release_expects(
    kind: str, fields: tuple[str, ...], known: bool, call: Caller, generations: Any
) -> None:
    request = generations(f"{kind}OptionsOf")(id="g")
    for field in fields:
        getattr(request.defaults, field).SetInParent()
    if known:
        raw = call.raw("NodeGroupGetOptions", request.SerializeToString())
        assert not wire.NodeGroupAutoscalingOptionsResponse.FromString(raw).HasField("nodeGroupAutoscalingOptions")
        return
    with pytest.raises(grpc.RpcError) as caught:
        call.raw("NodeGroupGetOptions", request.SerializeToString())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def _pod(**spec: Any) -> bytes:
    def container(name: str, cpu: str, restart: str = "") -> core.Container:
        requested = core.ResourceRequirements(requests={"cpu": core.Quantity(string=cpu)})
        return core.Container(name=name, resources=requested, restartPolicy=restart)

    containers = [container("c", "100m")]
    init = [container(name, *rest) for name, *rest in spec.pop("init", ())]
    pod_spec = core.PodSpec(containers=containers, initContainers=init, **spec)
    return core.Pod(metadata=core.ObjectMeta(name="p"), spec=pod_spec).SerializeToString()


PRICED_PODS: dict[str, tuple[bytes, str]] = {
    "an init container": (_pod(init=[("i", "2")]), "2"),
    "a sidecar": (_pod(init=[("i", "2", "Always")]), "2.1"),
    "overhead": (_pod(overhead={"cpu": core.Quantity(string="50m")}), "0.15"),
    "requests of the pod": (
        _pod(resources=core.ResourceRequirements(requests={"cpu": core.Quantity(string="3")})),
        "3",
    ),
}


@pytest.mark.parametrize(("pod", "cpu"), PRICED_PODS.values(), ids=PRICED_PODS)
def test_a_pod_is_priced_by_what_the_scheduler_counts(pod: bytes, cpu: str) -> None:
    assert pod_requests(pod) == {"cpu": Decimal(cpu)}
