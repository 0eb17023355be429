"""Pod Security admission: why it rejects new pods in a namespace that enforces a level of the Pod Security Standards.
Separate from the other reasons of admission, because the Standards are a list of rules of their own.

Pods that ran before the namespace got its label are not evicted, but their replacements are rejected. Source:
``k8s.io/pod-security-admission/policy``. The hosts of probes are not checked. Defaults and exemptions of the API
server's configuration are not known; a namespace without a label counts as one that enforces nothing.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from typing import Final, TypeAlias

from predicates.objects import Container, PodSpec, SecurityContext, Volume
from predicates.texts import quoted, shown

_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_VERSION: Final = "pod-security.kubernetes.io/enforce-version"

_PRIVILEGED: Final = "privileged"
_BASELINE: Final = "baseline"

_FORM: Final = re.compile(r"v1\.([0-9]{1,4})")
_LATEST: Final = 10_000

#: The minor version with which user namespaces relax some checks.
_RELAXED: Final = 35

#: Capabilities that pods of the level baseline may add.
_CAPABILITIES: Final = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
        *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)

#: The sysctls that are allowed, by the minor version from which on they are.
_SYSCTLS: Final[Mapping[str, int]] = {
    "kernel.shm_rmid_forced": 0,
    "net.ipv4.ip_local_port_range": 0,
    "net.ipv4.tcp_syncookies": 0,
    "net.ipv4.ping_group_range": 0,
    "net.ipv4.ip_unprivileged_port_start": 0,
    "net.ipv4.ip_local_reserved_ports": 27,
    "net.ipv4.tcp_keepalive_time": 29,
    "net.ipv4.tcp_fin_timeout": 29,
    "net.ipv4.tcp_keepalive_intvl": 29,
    "net.ipv4.tcp_keepalive_probes": 29,
    "net.ipv4.tcp_rmem": 32,
    "net.ipv4.tcp_wmem": 32,
    "net.ipv4.tcp_slow_start_after_idle": 37,
    "net.ipv4.tcp_notsent_lowat": 37,
}


def is_safe_sysctl(name: str) -> bool:
    """Return whether kubelets allow the sysctl *name* without a flag. Separators are dots or slashes."""
    return name.replace("/", ".") in _SYSCTLS


#: The types of SELinux contexts that are allowed, by the minor version from which on they are.
_SELINUX: Final[Mapping[str, int]] = {
    "": 0,
    "container_t": 0,
    "container_init_t": 0,
    "container_kvm_t": 0,
    "container_engine_t": 31,
}
_PROFILES: Final = frozenset({"RuntimeDefault", "Localhost"})

_NONE: Final = SecurityContext()


def enforces(labels: Mapping[str, str]) -> bool:
    """Return whether a namespace with these *labels* restricts new pods."""
    return labels.get(_ENFORCE, _PRIVILEGED) != _PRIVILEGED


def security_rejection(labels: Mapping[str, str], spec: PodSpec) -> str:
    """Return why a new pod with *spec* is rejected in a namespace with these *labels*, or ""."""
    if not enforces(labels):
        return ""
    level, version = labels[_ENFORCE], labels.get(_VERSION, "latest")
    match = _FORM.fullmatch(version)
    checks = _OF_BASELINE if level == _BASELINE else (*_OF_BASELINE, *_OF_RESTRICTED)
    found = (check(spec, int(match[1]) if match is not None else _LATEST) for check in checks)
    why = next(chain.from_iterable(found), "")
    return shown(f"its namespace enforces the Pod Security level {level} ({version}): {why}") if why else ""


_Check: TypeAlias = Callable[[PodSpec, int], Iterator[str]]


def _contexts(spec: PodSpec) -> Iterator[tuple[str, SecurityContext]]:
    """Yield the security contexts of the pod and of its containers, each with its name."""
    yield "the pod", spec.security_context or _NONE
    for container in _containers(spec):
        yield _name(container), container.security_context or _NONE


def _containers(spec: PodSpec) -> tuple[Container, ...]:
    return (*spec.init_containers, *spec.containers)


def _name(container: Container) -> str:
    return f"container {container.name}"


def _host(spec: PodSpec, _: int) -> Iterator[str]:
    for field, used in (("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)):
        if used:
            yield f"it has {field}: true"
    for volume in spec.volumes:
        if volume.host_path is not None:
            yield f"volume {volume.name} is a hostPath"
    for container in _containers(spec):
        if any(port.host_port for port in container.ports):
            yield f"{_name(container)} uses a hostPort"


def _privileges(spec: PodSpec, minor: int) -> Iterator[str]:
    for name, context in _contexts(spec):
        if context.privileged:
            yield f"{name} is privileged"
        if context.windows_options is not None and context.windows_options.host_process:
            yield f"{name} is a Windows HostProcess"
        if context.proc_mount not in (None, "Default") and not _in_user_namespace(spec, minor):
            yield f"{name} has the procMount {context.proc_mount}"
        for added in context.capabilities.add if context.capabilities is not None else ():
            if added not in _CAPABILITIES:
                yield f"{name} adds the capability {added}"


def _kernel(spec: PodSpec, minor: int) -> Iterator[str]:
    for name, context in _contexts(spec):
        for sysctl in context.sysctls:
            if _SYSCTLS.get(sysctl.name, _LATEST + 1) > minor:
                yield f"{name} sets the sysctl {sysctl.name}"
        if (options := context.se_linux_options) is not None and (
            options.user or options.role or _SELINUX.get(options.type, _LATEST + 1) > minor
        ):
            yield f"{name} has seLinuxOptions that are not allowed"
        for profile in (context.seccomp_profile, context.app_armor_profile):
            if profile is not None and profile.type not in _PROFILES:
                kind = "seccompProfile" if profile is context.seccomp_profile else "appArmorProfile"
                yield f"{name} has the {kind} {profile.type}"


_OF_BASELINE: Final[tuple[_Check, ...]] = (_host, _privileges, _kernel)

_NO_CAPABILITY: Final = 22  #: from this minor version on, capabilities must be dropped
_NO_ROOT: Final = 23  #: from this minor version on, runAsUser must not be 0


def _volumes(spec: PodSpec, _: int) -> Iterator[str]:
    for volume in spec.volumes:
        if all(source is None for source in _sources(volume)):
            yield f"volume {volume.name} has a type that is not allowed"


def _sources(volume: Volume) -> Collection[object]:
    """Return the sources of *volume* that are allowed in the level restricted."""
    ours = volume.persistent_volume_claim, volume.ephemeral, volume.csi, volume.empty_dir, volume.image
    return (*ours, volume.config_map, volume.downward_api, volume.projected, volume.secret)


def _root(spec: PodSpec, minor: int) -> Iterator[str]:
    if _in_user_namespace(spec, minor):
        return
    pod = spec.security_context or _NONE
    for name, context in _contexts(spec):
        if context.run_as_non_root is False:
            yield f"{name} has runAsNonRoot: false"
        if context.run_as_user == 0 and minor >= _NO_ROOT:
            yield f"{name} has runAsUser: 0"
    for container in _containers(spec):
        if not pod.run_as_non_root and (container.security_context or _NONE).run_as_non_root is None:
            yield f"{_name(container)} has no runAsNonRoot: true"


def _on_linux(spec: PodSpec, minor: int) -> Iterator[str]:
    """Check what does not exist on Windows."""
    if spec.os is not None and spec.os.name == "windows":
        return
    pod = spec.security_context or _NONE
    for container in _containers(spec):
        context = container.security_context or _NONE
        if context.allow_privilege_escalation is not False:
            yield f"{_name(container)} has no allowPrivilegeEscalation: false"
        if pod.seccomp_profile is None and context.seccomp_profile is None:
            yield f"{_name(container)} has no seccompProfile"
        if minor < _NO_CAPABILITY:
            continue
        if context.capabilities is None or "ALL" not in context.capabilities.drop:
            yield f"{_name(container)} does not drop ALL capabilities"
        elif others := sorted({*context.capabilities.add} - {"NET_BIND_SERVICE"}):
            yield f"{_name(container)} adds the capability {quoted(others[0])}"


_OF_RESTRICTED: Final[tuple[_Check, ...]] = (_volumes, _root, _on_linux)


def _in_user_namespace(spec: PodSpec, minor: int) -> bool:
    return spec.host_users is False and minor >= _RELAXED
