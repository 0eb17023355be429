"""Tests of usage errors of ``rescheduler resume``.

Its effect on a cluster is tested in tests/cluster/test_memory.py.
"""

import pytest

from rescheduler import cli

WRONG = {
    "two parts": (
        ("--waive=a/b",),
        "'a/b': expected NAMESPACE/KIND/NAME, such as default/Deployment/web, or NAMESPACE",
    ),
    "no name": (("--waive=default/Deployment/",), "'default/Deployment/': expected NAMESPACE/KIND/NAME"),
    "too many parts": (("--waive=a/b/c/d",), "'a/b/c/d': expected NAMESPACE/KIND/NAME"),
    "a space": (("--waive=a/b/c d",), "'a/b/c d': expected NAMESPACE/KIND/NAME"),
    "an empty name": (("--waive=",), "'': expected NAMESPACE/KIND/NAME"),
    "one of two names is invalid": (("--waive=a/b/c", "--waive=b/"), "'b/': expected NAMESPACE/KIND/NAME"),
    "an argument": (("default/Deployment/web",), "unexpected extra argument"),
    "no cluster": (("--waive=a/b/c", "--kubeconfig=/no/such/file"), "kubeconfig /no/such/file: no such file"),
    "a pause, and no cluster": (("--kubeconfig=/no/such/file",), "kubeconfig /no/such/file: no such file"),
    "an invalid name of a Lease": (("--lease-name=A",), "name 'A': expected lower-case letters, digits, '-' and '.'"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_usage_errors_are_one_line_and_exit_code_2(
    arguments: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["resume", *arguments])
    out, error = capfd.readouterr()
    assert (ended.value.code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("rescheduler")
    assert message in error


def test_the_help_explains_waivers(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["resume", "--help"])
    page = " ".join(capfd.readouterr().out.split())
    assert ended.value.code == 0
    for expected in (
        "--waive NS[/KIND/NAME]",
        "landing-pending",
        "env var: RESCHEDULER_MEMORY_NAME",
        "-n, --namespace",
    ):
        assert expected in page
