"""``python -m deploy.release.derived``: write the files that follow from others.

These are the options in the chart's values.schema.json, with the type and the form of each, the labels of its presets,
and the manifests of ``rescheduler install``.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import yaml

from devcluster import build
from predicates.texts import LONGEST_AMOUNT
from rescheduler.cli.go_flags import Bool, DurationType
from rescheduler.cli.install import MANIFESTS, RIGHTS
from rescheduler.cli.run import command as run
from rescheduler.durations import LONGEST, UNITS
from rescheduler.planning.node_labels import PRESETS
from rescheduler.planning.pauses import DAYS
from rescheduler.providers import BACKENDS

DEPLOY: Final = Path(__file__).parents[1]
CHART: Final = DEPLOY / "chart" / "spot-rescheduler"
SCHEMA: Final = "values.schema.json"
PRESET_LABELS: Final = "files/presets.json"

Json: TypeAlias = dict[str, Any]

_LINE: Final = 120

# Patterns are those of RE2, which Helm uses: without lookahead.
_KEY: Final = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE: Final = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_LISTED: Final = rf" *{_VALUE} *(, *{_VALUE} *)*"
_REQUIREMENT: Final = rf" *(!? *{_KEY}|{_KEY} *(=|==|!=) *{_VALUE}|{_KEY} +(in|notin) *\({_LISTED}\)) *"
_NAMESPACE: Final = r" *[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])? *"
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_HEX: Final = "[0-9a-fA-F]{1,4}"
_HOST_LABEL: Final = "[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?"
_DAY: Final = f"(?i:{'|'.join(DAYS)})"
_DAYS: Final = f"{_DAY}(-{_DAY})?(,{_DAY}(-{_DAY})?)*"
_TIME: Final = "([01][0-9]|2[0-3]):[0-5][0-9]"
_PRICE: Final = r"[0-9]{1,9}(\.[0-9]{1,12})?"
_AMOUNT: Final = r"[0-9]{1,12}(\.[0-9]{1,24})?"


#: The largest number of a text without a limit.
_MOST: Final = 10**18 - 1


def up_to(limit: int) -> str:
    """Return a pattern of the decimal numbers from 0 to *limit*."""
    digits = str(limit)
    less = [
        f"{digits[:at]}[0-{int(digit) - 1}][0-9]{{{len(digits) - at - 1}}}"
        for at, digit in enumerate(digits)
        if digit != "0"
    ]
    shorter = [f"[0-9]{{1,{len(digits) - 1}}}"] if len(digits) > 1 else []
    return f"0*({'|'.join([digits, *less, *shorter])})"


_LONGEST_NS: Final = int(LONGEST) * UNITS["s"]
#: Numbers with units. Each is shorter than the longest duration of a setting, whatever its fraction.
_PARTS: Final = "|".join(rf"{up_to(_LONGEST_NS // unit - 1)}(\.[0-9]*)?{name}" for name, unit in UNITS.items())
_DAY_COUNT: Final = up_to(_LONGEST_NS // (24 * UNITS["h"]) - 1)
_PART: Final = rf"({_PARTS}|\.[0-9]+({'|'.join(UNITS)}))"
_DURATION: Final = {
    "type": "string",
    "maxLength": LONGEST_AMOUNT,
    "pattern": rf"^\+?(0|{_DAY_COUNT}d({_PART})*|({_PART})+)$",
}
_NOT_MS: Final = "([^s]|$)"
_PARTLY: Final = r"\.[0-9]*[1-9][0-9]*"
#: Durations that are at least as long as the key, in seconds. Fractions of a larger unit are only compared with 0.
_LONGER: Final = {
    least: rf"(^|[a-zµμ+])0*([1-9][0-9]*(\.[0-9]*)?[dhms]{_NOT_MS}|[1-9][0-9]{{{digits},}}(\.[0-9]*)?ms)"
    rf"|{_PARTLY}{units}{_NOT_MS}"
    for least, digits, units in ((0.1, 2, "[dhms]"), (1.0, 3, "[dhm]"))
}

#: The forms of parsed values, by the name of their type. A price or number may also be a number in YAML.
_FORMS: Final[dict[str, Json]] = {
    "selector": {"type": "string", "pattern": f"^{_REQUIREMENT}(,{_REQUIREMENT})*$"},
    "key": {"type": "string", "pattern": f"^{_KEY}$"},
    "names": {"type": "string", "pattern": f"^{_NAMESPACE}(,{_NAMESPACE})*$"},
    "name": {"type": "string", "maxLength": 253, "pattern": f"^{_SUBDOMAIN}$"},
    # The names of time zones are those of the image, and whether a window is empty cannot be said by a pattern.
    "window": {"type": "string", "pattern": rf"^ *({_DAYS} +)?{_TIME}-({_TIME}|24:00)( +[A-Za-z0-9_+/-]+)? *$"},
    "host": {
        "type": "string",
        "pattern": rf"^({_HOST_LABEL}(\.{_HOST_LABEL})*\.?|{_HEX}(:{_HEX}){{7}}|::{_HEX})$",
    },
    "host:port": {"type": "string", "pattern": rf"^([^:\[\]]*|\[[^\[\]]*\]):{up_to(65535)}$"},
    "version": {"type": "string", "pattern": r"^v?1\.[0-9]{1,4}([.+-].*)?$"},
    "integer": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": r"^[-+]?[0-9]{1,18}$"}]},
    "number": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}]},
    "percent": {"type": "string", "pattern": "^ *(100|0?[1-9][0-9]|0{0,2}[1-9])% *$"},
    "headroom": {"type": "string", "pattern": "^ *([0-9]{1,4}%|largest-pool) *$"},
    "price": {
        "anyOf": [{"type": "number", "minimum": 0, "maximum": 999999999}, {"type": "string", "pattern": f"^{_PRICE}$"}]
    },
    "amount": {
        "anyOf": [
            {"type": "number", "minimum": 0, "maximum": 10**12 - 1},
            {"type": "string", "pattern": f"^{_AMOUNT}$"},
        ]
    },
    "nodes": {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": 999999},
            {"type": "string", "pattern": "^([^=]{1,63}=)?[0-9]{1,6}$"},
        ]
    },
    "image": {"type": "string", "maxLength": 255, "pattern": "^[!-~]+$"},
    "currency": {"type": "string", "maxLength": 16, "pattern": r"^[^\p{C}\p{Zl}\p{Zp}]*$"},
    "path": {"type": "string", "minLength": 1},
    "text": {"type": "string"},
}


def main() -> None:
    schema = CHART / SCHEMA
    schema.write_text(generated(schema.read_text(encoding="utf-8")), encoding="utf-8")
    (CHART / PRESET_LABELS).write_text(preset_labels(), encoding="utf-8")
    MANIFESTS.write_text(manifests(), encoding="utf-8")
    for component, file in RIGHTS.items():
        file.write_text(component_manifests(component), encoding="utf-8")


def manifests() -> str:
    """Return the objects of deploy/base and of its namespace as one text."""
    return _yaml(_rendered("namespace"))


def component_manifests(component: str) -> str:
    """Return the objects that deploy/components/*component* adds to those of deploy/base."""
    known = {(item["kind"], item["metadata"]["name"]) for item in _rendered()}
    return _yaml([item for item in _rendered(component) if (item["kind"], item["metadata"]["name"]) not in known])


def _rendered(*components: str) -> list[Json]:
    """Return the objects of deploy/base with *components*."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("base", "components"):
            (Path(folder) / name).symlink_to(DEPLOY / name)
        layer = {"resources": ["../base"], "components": [f"../components/{name}" for name in components]}
        (Path(folder) / "all").mkdir()
        (Path(folder) / "all" / "kustomization.yaml").write_text(yaml.safe_dump(layer))
        command = [str(build.render()), "kustomization", f"{folder}/all"]
        rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    objects = sorted(yaml.safe_load_all(rendered), key=lambda item: item["kind"] != "Namespace")
    for item in objects:
        if item["apiVersion"].startswith("admissionregistration.k8s.io/"):
            item["metadata"].pop("namespace", None)  # kustomize sets it, though these kinds have none
    return objects


def _yaml(objects: list[Json]) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, explicit_start=True, width=_LINE)


def generated(schema: str) -> str:
    """Return the text of the schema with the options, the presets and the cloud providers of the program."""
    document: Json = json.loads(schema)
    values = document["properties"]
    values["preset"] = {"enum": ["", *PRESETS]}
    values["cloudProvider"]["properties"]["name"] = {"enum": list(BACKENDS)}
    document["definitions"] = {"options": options(), "duration": _DURATION}
    return _text(document) + "\n"


def preset_labels() -> str:
    """Return the labels of the presets as JSON."""
    labels = {
        name: {"on-demand-node-label": str(on_demand), "spot-node-label": str(spot)}
        for name, (on_demand, spot) in PRESETS.items()
    }
    return _text(labels) + "\n"


def options() -> Json:
    """Return the schema of an object whose keys are the options of ``rescheduler run``, without dashes."""
    known = {
        flag.lstrip("-"): _form(option)
        for option in run.params
        if isinstance(option, click.Option) and option.name != "help_all"
        for flag in option.opts
    }
    return {"type": "object", "additionalProperties": False, "properties": dict(sorted(known.items()))}


def _form(option: click.Option) -> Json:
    form = _single(option.type)
    return {"anyOf": [form, {"type": "array", "items": form}]} if option.multiple else form


def _single(kind: click.ParamType[Any]) -> Json:
    match kind:
        case Bool():
            return {
                "enum": [True, False, "true", "false", "True", "False", "TRUE", "FALSE", "t", "f", "T", "F", "1", "0"]
            }
        case DurationType():
            least = kind.least.total_seconds()
            duration = {"$ref": "#/definitions/duration"}
            if not least:
                return {"anyOf": [duration, {"const": 0}]}
            return {"allOf": [duration, {"pattern": _LONGER[least]}]}
        case click.Choice():
            return {"enum": list(kind.choices)}
        case click.IntRange():
            limits = {"minimum": kind.min, "maximum": kind.max}
            number = {"type": "integer", **{name: limit for name, limit in limits.items() if limit is not None}}
            return {"anyOf": [number, _integer_text(int(kind.min or 0), int(kind.max or _MOST))]}
        case _:
            return _FORMS[kind.name]


def _integer_text(least: int, most: int) -> Json:
    """Return the schema of a text that is a number from *least* (negative, 0 or 1) to *most*."""
    negative = f"|-{up_to(-least)}" if least < 0 else ""
    text = {"type": "string", "pattern": rf"^(\+?{up_to(most)}{negative})$"}
    return {"allOf": [text, {"pattern": "[1-9]"}]} if least == 1 else text


def _text(value: Any, indent: int = 0) -> str:
    """Return *value* as JSON, with everything that fits on one line on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent + 40 <= _LINE or not isinstance(value, dict) or not value:
        return line
    space = " " * (indent + 2)
    entries = (f"{space}{json.dumps(key)}: {_text(each, indent + 2)}" for key, each in value.items())
    return "{\n" + ",\n".join(entries) + "\n" + " " * indent + "}"


if __name__ == "__main__":
    main()
