"""Validation of descriptions, with one-line errors."""

from collections.abc import Callable

import pytest

from rescheduler.errors import UsageError
from rescheduler.liqo.discovery import messages
from tests.liqo_services.kubeconfigs import kubeconfig


def test_a_kubeconfig_with_empty_references_is_accepted() -> None:
    nothing = {"insecure-skip-tls-verify": False, "certificate-authority": "", "proxy-url": "http://proxy:3128"}
    text = kubeconfig(user={"token": "sesame", "exec": None, "client-key-data": "LS0t"}, cluster=nothing)
    assert messages.kubeconfig(text) == text


def test_valid_descriptions_are_accepted_unchanged() -> None:
    assert messages.cluster_id("turin-1") == "turin-1"
    assert messages.quantities({"cpu": 1.5, "memory": " 4Gi", "nvidia.com/gpu": 1}, "resources") == {
        "cpu": "1.5",
        "memory": "4Gi",
        "nvidia.com/gpu": "1",
    }
    assert messages.labels({"city": "Turin, Italy", "hasGPU": ""}) == {"city": "Turin, Italy", "hasGPU": ""}
    assert messages.price(0) == 0
    assert messages.kubeconfig(kubeconfig()) == kubeconfig()


PLAIN = "expected YAML or JSON without aliases, merges and duplicate keys, at most 50 levels deep"
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a name with a dot": (
        lambda: messages.cluster_id("a.b"),
        "name 'a.b': expected a cluster ID: at most 63 of a-z, 0-9 and -",
    ),
    "a long name": (
        lambda: messages.cluster_id("a" * 64),
        f"name '{'a' * 64}': expected a cluster ID: at most 63 of a-z, 0-9 and -",
    ),
    "an amount": (
        lambda: messages.quantities({"cpu": "many"}, "info.free"),
        "info.free.cpu: quantity 'many': expected a number such as 250m, 1.5Gi or 1e3",
    ),
    "a negative amount": (
        lambda: messages.quantities({"cpu": "-1"}, "resources"),
        "resources.cpu: expected 0 or more, got -1",
    ),
    "a resource": (
        lambda: messages.quantities({"c p u": "1"}, "resources"),
        "resources: 'c p u': expected the name of a resource, such as cpu or nvidia.com/gpu",
    ),
    "too many resources": (
        lambda: messages.quantities({f"r{n}": "1" for n in range(65)}, "resources"),
        "resources: expected at most 64 entries, got 65",
    ),
    "a label": (
        lambda: messages.labels({"city": "a\nb"}),
        "labels: 'city': expected a key and a value of at most 256 printable characters",
    ),
    "a price": (lambda: messages.price(-0.1), "price: expected 0 to 1e+09, got -0.1"),
    "not YAML": (
        lambda: messages.kubeconfig("{secret: ["),
        f"kubeconfig: {PLAIN}",
    ),
    "an alias": (lambda: messages.kubeconfig("a: &x {secret: 1}\nb: *x"), f"kubeconfig: {PLAIN}"),
    "a merge": (lambda: messages.kubeconfig("a: {<<: {exec: secret}}"), f"kubeconfig: {PLAIN}"),
    "a key twice": (lambda: messages.kubeconfig("a: secret\na: 2"), f"kubeconfig: {PLAIN}"),
    "depth": (lambda: messages.kubeconfig("[" * 100_000), f"kubeconfig: {PLAIN}"),
    "two documents": (lambda: messages.kubeconfig("a: secret\n---\nb: 1"), f"kubeconfig: {PLAIN}"),
    "not a kubeconfig": (
        lambda: messages.kubeconfig("secret"),
        "kubeconfig: clusters: expected a list with one entry or more",
    ),
    "no user": (
        lambda: messages.kubeconfig("clusters: [{name: c, cluster: {}}]\nusers: [{name: secret}]"),
        "kubeconfig: users: expected entries with a name and a user",
    ),
    "a long one": (
        lambda: messages.kubeconfig("x" * (256 * 1024 + 1)),
        "kubeconfig: expected at most 262144 characters, got 262145",
    ),
    "a program": (
        lambda: messages.kubeconfig(kubeconfig(user={"exec": {"command": "/bin/sh"}})),
        "kubeconfig.users[0].user.exec: this field is not allowed",
    ),
    "a token file": (
        lambda: messages.kubeconfig(kubeconfig(user={"tokenFile": "/etc/shadow"})),
        "kubeconfig.users[0].user.tokenFile: this field is not allowed",
    ),
    "an exec plugin in different case, in another place": (
        lambda: messages.kubeconfig(kubeconfig(cluster={"extensions": [{"Exec": {"command": "/bin/sh"}}]})),
        "kubeconfig.clusters[0].cluster.extensions[0].Exec: this field is not allowed",
    ),
    "no verification": (
        lambda: messages.kubeconfig(kubeconfig(cluster={"insecure-skip-tls-verify": True})),
        "kubeconfig.clusters[0].cluster.insecure-skip-tls-verify: this field is not allowed",
    ),
    "a CA file": (
        lambda: messages.kubeconfig(kubeconfig(cluster={"certificate-authority": "/etc/ca"})),
        "kubeconfig.clusters[0].cluster.certificate-authority: this field is not allowed",
    ),
}


@pytest.mark.parametrize("fact", WRONG)
def test_errors_are_one_line_without_secrets(fact: str) -> None:
    call, message = WRONG[fact]
    with pytest.raises(UsageError) as caught:
        call()
    assert str(caught.value) == message
