"""A short run of `aws_faults`; ``python -m tests.providers.aws_faults`` runs 10,000 faults."""

from tests.providers.aws_faults import courses


def test_random_faults_break_no_rule() -> None:
    end, happened = courses(120, 7000)
    assert end > 7003
    assert {"lost-late", "killed-late", "throttled", "forbidden"} <= happened.keys()
