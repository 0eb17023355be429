"""The version that the program prints is that of its package."""

import configparser
from pathlib import Path

from rescheduler import VERSION

ROOT = Path(__file__).parents[2]


def test_the_program_and_its_package_have_one_version() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["metadata"]["version"] == VERSION
