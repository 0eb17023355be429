"""The namespaces whose pods may be evicted."""

from typing import Any

import pytest

from rescheduler.errors import UsageError
from rescheduler.planning.outcome import Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy, namespace_scope, parse_names, parse_selector
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, short, snapshot

LABELS = {"team": "web", "tier": "2"}

#: label selector → whether a namespace with LABELS matches
SELECTORS = {
    "team": True,
    "missing": False,
    "!missing": True,
    "!team": False,
    "team=web": True,
    "team==web": True,
    "team = web": True,
    "team=shop": False,
    "team!=web": False,
    "team!=shop": True,
    "missing!=web": True,
    "team in (shop, web)": True,
    "team in (shop)": False,
    "team notin (shop,ci)": True,
    "missing notin (shop)": True,
    "team=web,tier=2": True,
    "team=web,tier=3": False,
    "team in (shop,web), !missing": True,
    "team=": False,
}


@pytest.mark.parametrize(("text", "matches"), SELECTORS.items())
def test_selectors_match_labels_as_in_kubectl(text: str, matches: bool) -> None:
    assert parse_selector(text).matches(LABELS) is matches


REQUIREMENTS = "expected requirements such as team=web, team!=ci, team, '!team' or 'team in (web, shop)'"
WRONG_SELECTORS = {
    ",": f"'': {REQUIREMENTS}",
    "team=web,": f"'': {REQUIREMENTS}",
    "team web": f"'team web': {REQUIREMENTS}",
    "team in web": f"'team in web': {REQUIREMENTS}",
    "team=a b": "values[0][team]: Invalid value:",
    "-team": "key: Invalid value:",
}


@pytest.mark.parametrize(("text", "why"), WRONG_SELECTORS.items())
def test_an_invalid_namespace_selector_is_a_usage_error(text: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_selector(text)
    assert str(raised.value).startswith(f"label selector {text!r}: {why}")


def test_names_are_parsed_and_checked() -> None:
    assert parse_names("web, shop") == ("web", "shop")
    for text in ("", "web,", "Web", "a/b", "-a", "a" * 64):
        with pytest.raises(UsageError, match=r"expected at most 63 lower-case letters, digits and '-'"):
            parse_names(text)


def test_a_namespace_in_both_lists_is_a_usage_error() -> None:
    with pytest.raises(UsageError) as raised:
        namespace_scope(["web", "shop"], ["shop"])
    message = "namespace 'shop': expected in --namespaces or in --exclude-namespaces, not in both"
    assert str(raised.value) == message


def namespace(name: str, **labels: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def test_the_labels_of_namespaces_are_followed() -> None:
    cluster = snapshot([node("od", ON_DEMAND), node("s"), pod("web/a", "od"), namespace("web", critical="yes")])
    planner = Planner(cluster, Policy(namespaces=namespace_scope((), (), "!critical")))
    assert short(planner.plan_node("od", CIRCUMSTANCES)) == ["namespace-excluded"]
    cluster.replace("Namespace", snapshot([namespace("web")]).of("Namespace").values())
    assert short(planner.plan_node("od", CIRCUMSTANCES)) == {"a": "s"}


DETAILS: dict[str, tuple[tuple[Any, Any, str], str]] = {
    "excluded": (((), ["web"], ""), "--exclude-namespaces contains its namespace web"),
    "not named": ((["shop"], (), ""), "--namespaces does not contain its namespace web"),
    "no match": (((), (), "team=shop"), "its namespace web does not match --namespace-selector=team=shop"),
}


@pytest.mark.parametrize(("scope", "detail"), DETAILS.values(), ids=DETAILS)
def test_details_name_the_flag(scope: tuple[Any, Any, str], detail: str) -> None:
    cluster = snapshot([node("od", ON_DEMAND), node("s"), pod("web/a", "od")])
    verdict = Planner(cluster, Policy(namespaces=namespace_scope(*scope))).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert [(blocker.pod, blocker.detail) for blocker in verdict.blockers] == [("web/a", detail)]
