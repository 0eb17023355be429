"""Validate kubeconfig files before the official client's loader reads them.

Errors of the loader can contain a whole user entry with its token. The errors here name only files and entries.
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

from rescheduler.errors import UsageError
from rescheduler.net import files

#: Auth providers that the official client supports.
AUTH_PROVIDERS: Final = ("gcp", "oidc")


class Entries:
    """The context, cluster and user of a merged kubeconfig. Errors contain only names."""

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
        """Check that the files of the cluster and of the user can be read, before the loader opens them.

        Raises UsageError with a message that starts with *name*.
        """
        user = self.user()
        of_cluster = self._folder("clusters", self._chosen.get("cluster"))  # the loader resolves all three like this
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
        """Return the folder of the file with the entry. Relative paths in the entry are relative to it."""
        for node in self._content.get(section) or ():
            if str(node["name"]) == str(name):
                return Path(getattr(node, "path", "") or "").parent.absolute()
        return Path.cwd()

    def _named(self, section: str, item: str, name: str) -> Mapping[str, Any]:
        entries = {str(entry["name"]): entry for entry in map(_value, self._content.get(section) or ())}
        if name not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise UsageError(f"kubeconfig {self._paths}: no {item} {name!r}; it has: {known}")
        value = entries[name].get(item)
        return value if isinstance(value, Mapping) else {}


def _value(node: Any) -> Any:
    return getattr(node, "value", node)  # the merger wraps its entries


def merged_files(paths: str) -> KubeConfigMerger:
    """Merge those files of *paths* that exist, as kubectl does. Raises UsageError."""
    try:
        named = [Path(part).expanduser() for part in paths.split(os.pathsep) if part]
    except RuntimeError as error:
        raise UsageError(f"kubeconfig {paths}: there is no home directory; name the file") from error
    present = [path for path in named if _exists(path)]
    if not present:
        raise UsageError(f"kubeconfig {files.printable(paths)}: no such file")
    for path in present:
        _check_file(path)
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
        raise UsageError(f"kubeconfig {path}: expected YAML, found bytes that are not UTF-8") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UsageError(f"kubeconfig {path}: not YAML{where}") from None
    sections = ("clusters", "contexts", "users")
    if not isinstance(content, dict) or not all(
        isinstance(content.get(section) or [], list)
        and all(isinstance(entry, dict) and "name" in entry for entry in content.get(section) or [])
        for section in sections
    ):
        raise UsageError(f"kubeconfig {path}: expected lists of named clusters, contexts and users")


def data_key(key: str) -> str:
    """Return the key for inline data that replaces the file key *key*."""
    return "token" if key == "tokenFile" else f"{key}-data"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except ValueError:  # the path contains a NUL character
        return False


def check_data(entry: Mapping[str, Any], name: str) -> None:
    """Check that inline data is valid base64. Raises UsageError."""
    for key, value in entry.items():
        if str(key).endswith("-data"):
            try:
                base64.standard_b64decode(value)
            except (ValueError, TypeError):
                raise UsageError(f"{name}: {key}: expected base64") from None


def check_exec(plugin: Any, name: str) -> None:
    """Check that the exec plugin can be run. Raises UsageError."""
    if plugin is None:
        return
    command = plugin.get("command") if isinstance(plugin, Mapping) else None
    if not command or "apiVersion" not in plugin:
        raise UsageError(f"{name}: the user's exec plugin needs a command and an apiVersion")
    relative = os.sep in str(command) and not Path(str(command)).is_absolute()  # relative to the kubeconfig's folder
    if not relative and shutil.which(str(command)) is None:
        hint = " ".join(str(plugin.get("installHint") or "").split())
        raise UsageError(f"{name}: exec plugin {command} not found on the PATH" + (f" ({hint})" if hint else ""))


def check_provider(provider: Any, name: str) -> None:
    """Check that the official client supports the auth provider. Raises UsageError."""
    kind = provider.get("name") if isinstance(provider, Mapping) else None
    if provider is not None and kind not in AUTH_PROVIDERS:
        raise UsageError(f"{name}: auth provider {kind!r} is not supported; expected an exec plugin, or gcp or oidc")
