"""Certificates for tests, created by openssl: a CA, a server for 127.0.0.1, a client, and an untrusted CA."""

import subprocess
from pathlib import Path


def make(folder: Path) -> None:
    """Create ca.pem, server.pem and client.pem (certificate and key in one file), stranger.pem, encrypted.key."""
    for name in ("ca", "stranger"):
        _openssl(folder, "req", "-x509", *_NEW, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    for name in ("server", "client"):
        issue(folder, name)
    _openssl(folder, "ec", "-in", "client.key", "-aes256", "-passout", "pass:word", "-out", "encrypted.key")


def issue(folder: Path, name: str) -> None:
    """Issue a certificate of ca.pem for 127.0.0.1 with this common name: name.key, name.crt, and both in name.pem."""
    _openssl(folder, "req", *_NEW, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", "2")
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")
    (folder / f"{name}.pem").write_text((folder / f"{name}.crt").read_text() + (folder / f"{name}.key").read_text())


_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
