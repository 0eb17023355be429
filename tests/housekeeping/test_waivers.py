"""Waivers: what ``rescheduler resume --waive`` releases and says, and that it stores nothing if a name is unknown."""

from collections.abc import Collection
from dataclasses import dataclass

import pytest

from rescheduler.errors import Conflict, InputError
from rescheduler.housekeeping.synced_memory import waive
from rescheduler.kube.memory import Stored
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.memory import Memory, dump, load
from rescheduler.planning.movements import NotRecovered, OwnerWait
from rescheduler.planning.refusals import KubeletRefusal, KubeletRefusals
from tests.housekeeping.config_map import InMemoryConfigMap
from tests.planning.builders import NOW


def owed(name: str, pods: int = 1, node: str = "od-1") -> OpenDebt:
    namespace, kind, short = name.split("/")
    return OpenDebt(node, NOW, Debt(Controller(namespace, kind, short, f"uid-{short}"), pods, 0))


#: ``shop-2`` begins with the name of another namespace, and ``Widget`` is not a built-in kind.
MEMORY = Memory(
    drained_at=NOW,
    debts=(
        owed("shop/Deployment/web", 3),
        owed("shop/StatefulSet/web"),
        owed("shop-2/Deployment/web"),
        owed("shop/Deployment/web", node="od-2"),
        owed("ci/Widget.example.com/run"),
    ),
    not_recovered=NotRecovered(
        {
            name: OwnerWait(1, NOW)
            for name in ("shop/Deployment/web", "shop/Deployment/api", "shop", "ci/Job/old", "shop-2/Deployment/web")
        }
    ),
    refusals=KubeletRefusals().noted(
        KubeletRefusal(Controller("gpu", "Deployment", "train", "uid-train"), "digest", (), "spot-1", "OutOfcpu", NOW)
    ),
)
WEB_DEBTS = [
    "shop/Deployment/web: 3 pods owed since the drain of od-1 at 2026-01-01T12:00:00Z",
    "shop/Deployment/web: 1 pod owed since the drain of od-2 at 2026-01-01T12:00:00Z",
]
SET_DEBT = "shop/StatefulSet/web: 1 pod owed since the drain of od-1 at 2026-01-01T12:00:00Z"
OTHER_DEBT = "shop-2/Deployment/web: 1 pod owed since the drain of od-1 at 2026-01-01T12:00:00Z"
RUN_DEBT = "ci/Widget.example.com/run: 1 pod owed since the drain of od-1 at 2026-01-01T12:00:00Z"


def waits(*names: str) -> list[str]:
    return [f"{name}: its pods were not to be moved before 2026-01-01T12:00:00Z" for name in names]


@dataclass(frozen=True)
class Case:
    names: tuple[str, ...]
    released: list[str]


CASES = {
    "debts to one owner from two drains": Case(("shop/Deployment/web",), [*WEB_DEBTS, *waits("shop/Deployment/web")]),
    "an owner of the same name and another kind": Case(("shop/StatefulSet/web",), [SET_DEBT]),
    "an owner that only waits": Case(("ci/Job/old",), waits("ci/Job/old")),
    "a kind that is not built in": Case(("ci/Widget.example.com/run",), [RUN_DEBT]),
    "a namespace with several debts and waits": Case(
        ("shop",),
        [WEB_DEBTS[0], SET_DEBT, WEB_DEBTS[1], *waits("shop", "shop/Deployment/api", "shop/Deployment/web")],
    ),
    "an owner of a pod that a kubelet refused": Case(
        ("gpu/Deployment/train",),
        ["gpu/Deployment/train: the kubelet of spot-1 refused a pod at 2026-01-01T12:00:00Z"],
    ),
    "a namespace whose name begins with another's": Case(("shop-2",), [OTHER_DEBT, *waits("shop-2/Deployment/web")]),
    "an owner and a namespace": Case(
        ("ci", "shop-2/Deployment/web"), [OTHER_DEBT, RUN_DEBT, *waits("ci/Job/old", "shop-2/Deployment/web")]
    ),
    "a name twice, and its namespace": Case(("ci", "ci", "ci/Job/old"), [RUN_DEBT, *waits("ci/Job/old")]),
}


def stored(config_map: InMemoryConfigMap) -> Stored:
    assert config_map.stored is not None
    return config_map.stored


@pytest.mark.parametrize(("names", "released"), [(case.names, case.released) for case in CASES.values()], ids=CASES)
def test_a_waiver_says_what_it_released(names: tuple[str, ...], released: list[str]) -> None:
    config_map = InMemoryConfigMap()
    config_map.put(dump(MEMORY), "earlier/Job/x")
    assert waive(config_map, names) == released
    assert set(stored(config_map).waived) == {"earlier/Job/x", *names}
    assert load(stored(config_map).content) == MEMORY  # the daemon applies the waivers


def test_an_owner_that_is_released_leaves_the_debts_and_waits_of_others() -> None:
    after = MEMORY.waived(["shop/Deployment/web"])
    assert [owed.debt.controller.kind for owed in after.debts] == ["StatefulSet", "Deployment", "Widget.example.com"]
    assert (after.drained_at, "shop" in after.not_recovered.by_name) == (NOW, True)  # another owner of it waits


KNOWN = (
    "ci/Job/old, ci/Widget.example.com/run, gpu/Deployment/train, shop, shop-2/Deployment/web, shop/Deployment/api, "
)
UNKNOWN = {
    "an owner of another kind": ("shop/ReplicaSet/web",),
    "an owner in another namespace": ("ci/Deployment/web",),
    "a part of a namespace": ("sho",),
    "another case": ("Shop",),
    "a known name and two unknown ones": ("shop", "a/Job/b", "c"),
}


@pytest.mark.parametrize("names", UNKNOWN.values(), ids=UNKNOWN)
def test_nothing_is_waived_if_a_name_is_unknown(names: tuple[str, ...]) -> None:
    config_map = InMemoryConfigMap()
    config_map.put(dump(MEMORY))
    before = config_map.stored
    unknown = ", ".join(name for name in names if name != "shop")
    with pytest.raises(InputError) as error:
        waive(config_map, names)
    assert str(error.value) == f"{unknown}: nothing to release; known: {KNOWN}shop/Deployment/web, shop/StatefulSet/web"
    assert config_map.stored == before


def test_without_a_debt_nothing_is_known() -> None:
    config_map = InMemoryConfigMap()
    config_map.put(dump(Memory()))
    with pytest.raises(InputError, match=r"^shop: nothing to release; known: none$"):
        waive(config_map, ["shop"])


class Raced(InMemoryConfigMap):
    """The daemon stores another debt between the first read and the first write."""

    def waive(self, controllers: Collection[str], version: str = "") -> None:
        if stored(self).version == "1":
            self.put(dump(Memory(debts=(owed("ci/Job/new"),))))
            raise Conflict("patch configmap: the object has been modified (409)")
        super().waive(controllers, version)


def test_a_waiver_is_repeated_after_a_conflict_and_says_what_is_released_then() -> None:
    config_map = Raced()
    config_map.put(dump(MEMORY))
    released = ["ci/Job/new: 1 pod owed since the drain of od-1 at 2026-01-01T12:00:00Z"]
    assert waive(config_map, ["ci"]) == released
    assert stored(config_map).waived == ("ci",)
