"""Plans for clusters of any size, for tests of pages."""

from datetime import timedelta
from decimal import Decimal

from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import Planning
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.what_if.overview import Lever, Overview, overview
from tests.planning.builders import NOW, ON_DEMAND, SPOT, Manifest, budget, node, pod, snapshot

PRICES = PriceList(
    by_type={("m5.xlarge", "", False): Decimal("0.192"), ("m5.xlarge", "", True): Decimal("0.06")}, currency="$"
)
EVERY_THIRD = 3


def manifests(on_demand: int, spot: int) -> list[Manifest]:
    """Return a cluster: every third on-demand node has a pod without a controller, and one has a strict budget."""
    objects = [
        machine(f"ip-10-0-{i // 250}-{i % 250}.eu-central-1.compute.internal", ON_DEMAND) for i in range(on_demand)
    ]
    objects += [machine(f"ip-10-1-{i // 250}-{i % 250}.eu-central-1.compute.internal", SPOT) for i in range(spot)]
    for index, item in enumerate(objects[:on_demand]):
        name = item["metadata"]["name"]
        objects.append(pod(f"shop/web{index}-a", name, cpu="500m"))
        objects.append(pod(f"shop/worker{index}-b", name, cpu="250m"))
        if index % EVERY_THIRD == 0:
            objects.append(pod(f"ops/bare{index}", name, cpu="100m", owner=None))
    for index, item in enumerate(objects[on_demand : on_demand + spot]):
        objects.append(pod(f"shop/cache{index}-c", item["metadata"]["name"], cpu=f"{500 + 100 * (index % 20)}m"))
    return [*objects, budget("web1", "web1", allowed=0, namespace="shop")]


def machine(name: str, role: str) -> Manifest:
    """Return an m5.xlarge that is two days old."""
    manifest = node(name, role, labels={"node.kubernetes.io/instance-type": "m5.xlarge"})
    manifest["metadata"]["creationTimestamp"] = f"{NOW - timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}"
    return manifest


def planned(on_demand: int, spot: int, *levers: Lever, prices: PriceList = PRICES) -> Overview:
    """Return the overview of the plan for :func:`manifests`."""
    cluster = snapshot(manifests(on_demand, spot))
    policy = Policy(budgets_in_steps=True, planning_timeout=0)
    planning: Planning = Planner(cluster, policy).plan_all(Circumstances(NOW))
    return overview(planning, cluster, prices, levers)
