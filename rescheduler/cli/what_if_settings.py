"""The settings of ``--what-if``: planning flags with a different value."""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, Final

import click

from rescheduler.cli.policy_options import ANY_SCHEDULER
from rescheduler.errors import UsageError
from rescheduler.planning.namespaces import NamespaceScope, namespace_scope, parse_names
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.changes import SettingChange

#: Parameter → function that returns the scope of namespaces with the flag set to a text; "" removes the limit.
_SCOPES: Final[Mapping[str, Callable[[NamespaceScope, str], NamespaceScope]]] = {
    "namespaces": lambda scope, text: namespace_scope(_names(text), scope.excluded, scope.selector_text),
    "exclude_namespaces": lambda scope, text: namespace_scope(scope.included, _names(text), scope.selector_text),
    "namespace_selector": lambda scope, text: namespace_scope(scope.included, scope.excluded, text),
}

#: The parameter whose opposite is the field ``budgets_in_steps`` of the policy.
_AT_ONCE: Final = "budgets_at_once"


def setting_options(policy: Policy, params: Sequence[click.Parameter]) -> dict[str, click.Option]:
    """Return the options among *params* that affect planning, by name, including hidden options."""
    lists = {field.name: isinstance(getattr(policy, field.name), tuple) for field in fields(policy)}
    options = (param for param in params if isinstance(param, click.Option))
    return {
        option.opts[0].removeprefix("--"): option
        for option in options
        if option.name in _SCOPES or option.name == _AT_ONCE or lists.get(option.name or "") == option.multiple
    }


def setting_change(option: click.Option, text: str, policy: Policy) -> SettingChange:
    """Return the change of *policy* that sets *option* to *text*. Raises UsageError if *text* is not valid."""
    assert option.name is not None
    change = _change(option, option.name, text, policy)
    after = replace(policy, **{change.field: change.value})
    if after.on_demand_label.same_as(after.spot_label):
        raise UsageError("both labels would be the same: expected two labels")
    return change


def _change(option: click.Option, name: str, text: str, policy: Policy) -> SettingChange:
    if name in _SCOPES:
        return SettingChange("namespaces", _SCOPES[name](policy.namespaces, text))
    try:
        value = option.type.convert(text, option, None)
    except click.UsageError as error:
        raise UsageError(error.message) from None
    if name == _AT_ONCE:
        return SettingChange("budgets_in_steps", not value)
    return SettingChange(name, _as_field(value, getattr(policy, name), multiple=option.multiple))


def _as_field(value: Any, before: Any, *, multiple: bool) -> Any:
    """Convert the *value* of an option to a field of the policy, whose value was *before*."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(before, enum.Enum):
        return type(before)(value)
    if not multiple or isinstance(value, tuple):
        return value
    if not value:
        raise UsageError(f"expected a name, or {ANY_SCHEDULER} for all")
    return () if value == ANY_SCHEDULER else (value,)


def _names(text: str) -> tuple[str, ...]:
    return parse_names(text) if text.strip() else ()
