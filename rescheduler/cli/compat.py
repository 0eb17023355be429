"""``--compat``: use the defaults of another tool. Flags and the environment take precedence."""

from collections.abc import Mapping
from typing import Any, Final

import click

from rescheduler.cli.go_flags import Option

ORIGINAL: Final = "k8s-spot-rescheduler"

#: By tool: its defaults that differ from ours, by parameter name.
DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    ORIGINAL: {
        "skip_nodes_with_local_storage": "false",
        "skip_nodes_with_system_pods": "false",
        "allow_fragile_plans": "true",
        "allow_returning_plans": "true",
        "move_jobs": "always",
        "scheduler_names": ("*",),
        "return_wait": "0",
        "max_moves_per_pod_per_day": "0",
    }
}


def _set_defaults(context: click.Context, _: click.Parameter, tool: str | None) -> None:
    if tool:
        context.default_map = {**(context.default_map or {}), **DEFAULTS[tool]}


compat_option: Final = Option(
    "--compat",
    click.Choice(list(DEFAULTS)),
    is_eager=True,
    expose_value=False,
    callback=_set_defaults,
    help=f"Use the defaults of this tool. {ORIGINAL} changes the defaults of eight flags: "
    "--skip-nodes-with-local-storage=false, --skip-nodes-with-system-pods=false, --allow-fragile-plans, "
    "--allow-returning-plans, --move-jobs=always, --scheduler-name='*', --return-wait=0 and "
    "--max-moves-per-pod-per-day=0. Explicit flags take precedence. Drains still wait until the moved pods "
    "run again.",
)
