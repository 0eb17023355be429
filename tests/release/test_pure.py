"""Modules that call themselves pure are named in the import contracts about purity."""

import ast
import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = ("decisions", "pure-modules")
CLAIM = re.compile(r"(^|\. )(Pure\b|No I/O( and no clock|, no clock)?\.|Pure: )")


def _held() -> tuple[str, ...]:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return tuple(
        module for name in CONTRACTS for module in config[f"importlinter:contract:{name}"]["source_modules"].split()
    )


def _claiming() -> list[str]:
    modules = []
    for package in ("predicates", "rescheduler"):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            if CLAIM.search(" ".join(text.split())):
                modules.append(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    return modules


@pytest.mark.parametrize("module", _claiming())
def test_a_pure_module_is_in_a_contract(module: str) -> None:
    assert any(f"{module}.".startswith(f"{held}.") for held in _held())


def test_known_pure_modules_are_found() -> None:
    assert {"predicates", "rescheduler.planning", "rescheduler.kube.jobs"} <= set(_claiming())
