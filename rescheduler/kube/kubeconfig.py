"""Kubeconfig files, looked over before the official client's loader sees them.

The loader's own complaints can quote a whole user entry, token and all; these name files and entries only.
"""

import base64
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import KubeConfigMerger

from rescheduler import files
from rescheduler.errors import UsageError

#: What the official client knows beside tokens, certificates and exec plugins.
AUTH_PROVIDERS: Final = ("gcp", "oidc")


class Entries:
    """The context, cluster and user of a merged kubeconfig, looked up with errors that quote only names."""

    def __init__(self, paths: str, merged: KubeConfigMerger, context: str | None) -> None:
        self._paths = paths
        self._content: Mapping[str, Any] = merged.config.value
        self.context = context or self._content.get("current-context") or ""
        if not self.context:
            raise UsageError(f"kubeconfig {paths}: no current-context; expected one, or --context")
        self._chosen = self._named("contexts", "context", self.context)
        self.cluster = self._named("clusters", "cluster", str(self._chosen.get("cluster", "")))
        if not str(self.cluster.get("server", "")).startswith(("http://", "https://")):
            raise UsageError(
                f"kubeconfig {paths}: the cluster of context {self.context} has no server; expected an https URL"
            )

    def user(self) -> Mapping[str, Any]:
        name = self._chosen.get("user")
        return self._named("users", "user", str(name)) if name else {}

    def check_files(self, name: str) -> None:
        """See that the files which cluster and user name can be read, before the loader opens them.

        Raises UsageError, which begins with *name*.
        """
        user = self.user()
        of_cluster = self._folder("clusters", self._chosen.get("cluster"))  # the loader's rule for all three
        of_user = self._folder("users", self._chosen.get("user"))
        named = {"certificate-authority": (self.cluster, of_cluster), "tokenFile": (user, of_user)}
        named |= dict.fromkeys(("client-certificate", "client-key"), (user, of_cluster))
        for key, (entry, folder) in named.items():
            if (value := entry.get(key)) and data_key(key) not in entry:
                try:
                    files.check(folder / str(value))
                except OSError as error:
                    text = f"{name}: {key} {files.printable(str(value))}: {error.strerror}"
                    raise UsageError(text) from None

    def _folder(self, section: str, name: object) -> Path:
        """Of the file that holds the entry: relative paths count from it."""
        for node in self._content.get(section) or ():
            if str(node["name"]) == str(name):
                return Path(getattr(node, "path", "") or "").parent.absolute()
        return Path.cwd()

    def _named(self, section: str, item: str, name: str) -> Mapping[str, Any]:
        entries = {str(one["name"]): one for one in map(_value, self._content.get(section) or ())}
        if name not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise UsageError(f"kubeconfig {self._paths}: no {item} {name!r}; it has: {known}")
        found = entries[name].get(item)
        return found if isinstance(found, Mapping) else {}


def _value(node: Any) -> Any:
    return getattr(node, "value", node)  # the merger wraps its entries


def merged_files(paths: str) -> KubeConfigMerger:
    """The files of *paths* that are there, merged as kubectl does. Raises UsageError."""
    try:
        named = [Path(one).expanduser() for one in paths.split(os.pathsep) if one]
    except RuntimeError as error:
        raise UsageError(f"kubeconfig {paths}: there is no home directory; name the file") from error
    present = [one for one in named if _exists(one)]
    if not present:
        raise UsageError(f"kubeconfig {files.printable(paths)}: no such file")
    for one in present:
        _check_file(one)
    try:
        merged = KubeConfigMerger(os.pathsep.join(map(str, present)))
        list(map(_value, merged.config.value.get("contexts") or ()))
    except (ConfigException, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"kubeconfig {paths}: expected lists of clusters, contexts and users") from error
    return merged


def _check_file(path: Path) -> None:
    try:
        content = yaml.safe_load(files.read_text(path))
    except OSError as error:
        raise UsageError(f"kubeconfig {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"kubeconfig {path}: expected YAML, found bytes that are no UTF-8") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UsageError(f"kubeconfig {path}: not YAML{where}") from None
    sections = ("clusters", "contexts", "users")
    if not isinstance(content, dict) or not all(
        isinstance(content.get(one) or [], list)
        and all(isinstance(entry, dict) and "name" in entry for entry in content.get(one) or [])
        for one in sections
    ):
        raise UsageError(f"kubeconfig {path}: expected lists of named clusters, contexts and users")


def data_key(key: str) -> str:
    """The key that holds in place what *key* names a file of."""
    return "token" if key == "tokenFile" else f"{key}-data"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except ValueError:  # a NUL character in it
        return False


def check_data(entry: Mapping[str, Any], name: str) -> None:
    """See that what stands for files can be decoded. Raises UsageError."""
    for key, value in entry.items():
        if str(key).endswith("-data"):
            try:
                base64.standard_b64decode(value)
            except (ValueError, TypeError):
                raise UsageError(f"{name}: {key}: expected base64") from None


def check_exec(plugin: Any, name: str) -> None:
    """See that an exec plugin can be run. Raises UsageError."""
    if plugin is None:
        return
    command = plugin.get("command") if isinstance(plugin, Mapping) else None
    if not command or "apiVersion" not in plugin:
        raise UsageError(f"{name}: the user's exec plugin needs a command and an apiVersion")
    relative = os.sep in str(command) and not Path(str(command)).is_absolute()  # to the kubeconfig's folder
    if not relative and shutil.which(str(command)) is None:
        hint = " ".join(str(plugin.get("installHint") or "").split())
        raise UsageError(f"{name}: exec plugin {command} not found on the PATH" + (f" ({hint})" if hint else ""))


def check_provider(provider: Any, name: str) -> None:
    """See that an auth provider is one that the official client knows. Raises UsageError."""
    kind = provider.get("name") if isinstance(provider, Mapping) else None
    if provider is not None and kind not in AUTH_PROVIDERS:
        raise UsageError(f"{name}: auth provider {kind!r} is not supported; expected an exec plugin, or gcp or oidc")
