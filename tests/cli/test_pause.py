"""Usage errors of ``rescheduler pause`` and ``status``. Their effect is tested in tests/cluster/test_pause.py."""

import pytest

from rescheduler import cli

WRONG = {
    "not a duration": (("pause", "--for=soon"), "'soon': expected a duration such as 10s, 2m30s, 1h or 500ms"),
    "too short": (("pause", "--for=0"), "'0': expected at least 1s"),
    "a negative duration": (("pause", "--for=-1h"), "'-1h': expected a duration"),
    "a reason that is too long": (("pause", f"--reason={'x' * 257}"), "expected at most 256 characters"),
    "a duration of centuries": (("pause", "--for=9999999h"), "'9999999h': expected a duration of at most 87600h"),
    "a reason with an escape sequence": (
        ("pause", "--reason=a\x1b[31mb"),
        "'a\\x1b[31mb': expected text without control characters",
    ),
    "a reason that is not text": (
        ("pause", "--reason=a\udcff"),
        "'a\\udcff': expected text without control characters",
    ),
    "an empty namespace": (("pause", "--namespace="), "name '': expected lower-case letters, digits, '-' and '.'"),
    "an invalid namespace": (("status", "--namespace=a b"), "name 'a b': expected lower-case letters"),
    "an invalid name of a memory": (("status", "--memory-name=a/b"), "name 'a/b': expected lower-case letters"),
    "an argument": (("pause", "2h"), "unexpected extra argument"),
    "an invalid name of a Lease": (("pause", "--lease-name=A"), "name 'A': expected lower-case letters"),
    "no cluster": (("pause", "--kubeconfig=/no/such/file"), "kubeconfig /no/such/file: no such file"),
    "an unknown format": (("status", "-o", "wide"), "'wide' is not one of 'table', 'json', 'yaml'"),
    "status, no cluster": (("status", "--kubeconfig=/no/such/file"), "kubeconfig /no/such/file: no such file"),
    "a window without a zone that exists": (
        ("run", "--drain-window=09:00-10:00 Mars/Base"),
        "drain window '09:00-10:00 Mars/Base': zone 'Mars/Base': expected a name of the IANA time zone database",
    ),
    "a namespace in both lists": (
        ("run", "--namespaces=a,b", "--exclude-namespaces=b"),
        "namespace 'b': expected in --namespaces or in --exclude-namespaces, not in both",
    ),
    "no name of a namespace": (("plan", "--exclude-namespaces=a,,b"), "namespace '': expected at most 63"),
    "an invalid selector": (
        ("plan", "--namespace-selector=a b"),
        "label selector 'a b': 'a b': expected requirements such as",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_usage_errors_are_one_line_and_exit_code_2(
    arguments: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    out, error = capfd.readouterr()
    assert (ended.value.code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("rescheduler")
    assert message in error


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pause", ("--for DURATION", "--reason TEXT", "survives restarts", "env var: RESCHEDULER_LEASE_NAME")),
        ("status", ("-o, --output", "table|json|yaml", "--node-drain-delay", "env var: RESCHEDULER_MEMORY_NAME")),
        ("run", ("--drain-window WINDOW", "Europe/Stockholm", "--namespace-selector SELECTOR")),
    ],
)
def test_the_help_explains_the_command(
    command: str, expected: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help-all"])
    page = " ".join(capfd.readouterr().out.split())
    assert (ended.value.code, [word for word in expected if word not in page]) == (0, [])
