"""All targets by name: each opens in a folder and yields its process and its attack."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import grpc

from tests.fuzz import inputs, providers, targets
from tests.fuzz.attack import AttackTally, http_attack
from tests.fuzz.calls import grpc_attack
from tests.fuzz.process import Watched

Attack: TypeAlias = Callable[[AttackTally, int, int], None]  #: tally, number of examples, seed
Opened: TypeAlias = tuple[Watched | inputs.CommandFolder, Attack]


@contextlib.contextmanager
def _http(opened: AbstractContextManager[targets.AttackTarget]) -> Iterator[Opened]:
    with opened as target:
        yield target.process, partial(http_attack, target)


@contextlib.contextmanager
def _grpc(opened: AbstractContextManager[providers.FuzzedCloud]) -> Iterator[Opened]:
    with opened as world, grpc.insecure_channel(world.address) as channel:
        yield world.process, partial(grpc_attack, world, channel)


@contextlib.contextmanager
def _commands(folder: Path) -> Iterator[Opened]:
    with inputs.commands(folder) as commands:
        yield commands, commands.attack


TARGETS: Final[dict[str, Callable[[Path], AbstractContextManager[Opened]]]] = {
    "inputs": _commands,
    "run": lambda folder: _http(targets.pages(folder)),
    "proxy": lambda folder: _http(targets.proxy(folder)),
    "proxy-tls": lambda folder: _http(targets.proxy(folder, tls=True)),
    "liqo-discovery": lambda folder: _http(targets.liqo(folder, "discovery")),
    "liqo-node-manager": lambda folder: _http(targets.liqo(folder, "node-manager")),
    "liqo-discovery-tls": lambda folder: _http(targets.liqo(folder, "discovery", tls=True)),
    "liqo-node-manager-tls": lambda folder: _http(targets.liqo(folder, "node-manager", tls=True)),
    "provider-cherryservers": lambda folder: _grpc(providers.cherryservers(folder)),
    "provider-stackpoint": lambda folder: _grpc(providers.stackpoint(folder)),
    "provider-cloudpool": lambda folder: _grpc(providers.cloudpool(folder)),
}
