"""The options shared by the Liqo services: ``@listener_options`` passes ``listener: HttpsListener``."""

from pathlib import Path
from typing import Any, Final

from rescheduler.cli.go_flags import FILE, Bool, Option
from rescheduler.cli.options import ADDRESS, Decorator, group
from rescheduler.settings import ListenAddress


def listener_options(listen: str) -> Decorator:
    """Return the options for the listen address (default *listen*) and the certificates."""
    return group(
        "listener",
        _listener,
        (
            Option("--listen", ADDRESS, default=listen, help="Address to serve on; without a host, all interfaces."),
            Option(
                "--tls-cert",
                FILE,
                metavar="FILE",
                help="Server certificate with its chain, PEM. Certificate, key and CA files are reloaded when "
                "they change.",
            ),
            Option("--tls-key", FILE, metavar="FILE", help="Private key of --tls-cert, PEM, not encrypted."),
            Option(
                "--tls-client-ca",
                FILE,
                metavar="FILE",
                help="CA of client certificates, PEM. Clients must present a certificate issued by it.",
            ),
            Option(
                "--insecure-plaintext",
                Bool(),
                to="plaintext",
                default=False,
                help="Serve plain HTTP without authentication. Allowed on a loopback address only.",
            ),
        ),
    )


health_option: Final = Option(
    "--health-address",
    ADDRESS,
    default="localhost:9235",
    help="Address of /metrics, /healthz and /readyz, in plain text. Use 0.0.0.0:9235 for kubelet probes or a "
    "Prometheus outside of the pod.",
)


def _listener(
    listen: ListenAddress, tls_cert: Path | None, tls_key: Path | None, tls_client_ca: Path | None, **more: Any
) -> Any:
    from rescheduler.liqo_services.serving import HttpsListener  # noqa: PLC0415 - the server is imported on demand

    return HttpsListener(listen, cert=tls_cert, key=tls_key, client_ca=tls_client_ca, **more)
