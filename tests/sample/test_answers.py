"""The simulations in docs/simulating.md print what the page shows. ``python -m tests.sample.answers`` writes them."""

import pytest

from tests.sample.answers import PAGE, commands, printed, rewritten, shown

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("command", commands(TEXT))
def test_a_simulation_prints_what_the_page_shows(command: str) -> None:
    assert printed(command) == shown(TEXT, command)


def test_the_page_answers_which_drain_delay() -> None:
    assert [command for command in commands(TEXT) if "--compare '--node-drain-delay=1h'" in command]


def test_other_blocks_of_a_page_are_kept() -> None:
    page = "```bash\nrescheduler --version\n```\n\n```text\nold\n```\n\n```bash\nmake demo\n```\n\n```text\nkept\n```\n"
    assert commands(page) == ["--version"]
    version = printed("--version")
    assert version.startswith("rescheduler")
    assert rewritten(page, {"--version": version}) == page.replace("old\n", version)


def test_the_page_answers_what_survival_costs_at_three_rates() -> None:
    asked = [command for command in commands(TEXT) if "--compare '--survive=pool'" in command]
    assert len({command.partition("--spot-loss ")[2].split()[0] for command in asked}) == 3
