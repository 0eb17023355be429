"""The options that the Liqo parts share: ``@face_options`` passes ``face: Face``."""

from pathlib import Path
from typing import Any, Final

from rescheduler.cli.go_flags import FILE, Bool, Option
from rescheduler.cli.options import Decorator, group
from rescheduler.cli.run import ADDRESS
from rescheduler.settings import Address


def face_options(listen: str) -> Decorator:
    """Where to listen, *listen* by default, and with which certificates."""
    return group(
        "face",
        _face,
        (
            Option("--listen", ADDRESS, default=listen, help="Where to serve; without a host on every interface."),
            Option(
                "--tls-cert",
                FILE,
                metavar="FILE",
                help="Our certificate, PEM, with its chain. The three files are read again when they change.",
            ),
            Option("--tls-key", FILE, metavar="FILE", help="Private key of --tls-cert, PEM, without a password."),
            Option(
                "--tls-client-ca",
                FILE,
                metavar="FILE",
                help="Clients must show a certificate of this authority, PEM.",
            ),
            Option(
                "--insecure-plaintext",
                Bool(),
                to="plaintext",
                default=False,
                help="Serve plain HTTP to anybody, on a loopback address only.",
            ),
        ),
    )


health_option: Final = Option(
    "--health-address",
    ADDRESS,
    default="localhost:9235",
    help="Where /metrics, /healthz and /readyz are served, in plain text. Probes and a Prometheus elsewhere need "
    "0.0.0.0:9235.",
)


def _face(listen: Address, tls_cert: Path | None, tls_key: Path | None, tls_client_ca: Path | None, **more: Any) -> Any:
    from rescheduler.liqo.serving import Face  # noqa: PLC0415 - the server is imported when it is needed

    return Face(listen, cert=tls_cert, key=tls_key, client_ca=tls_client_ca, **more)
