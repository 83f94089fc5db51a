"""Certificates as openssl makes them: good ones, and ones that nobody should believe."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


def certificate(folder: Path, *, host: str = "127.0.0.1", days: int = 2) -> Path:
    """Self-signed for `host`, over since yesterday with -1 `days`; its key is in the same file."""
    found = shutil.which("openssl")
    if found is None:
        pytest.skip("no openssl to make a certificate with")
    folder.mkdir(parents=True, exist_ok=True)
    key, ask, cert, names = (folder / name for name in ("key.pem", "ask.pem", "cert.pem", "names"))
    names.write_text(f"subjectAltName={'IP' if host[0].isdigit() else 'DNS'}:{host}\n")
    new = ("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={host}")
    sign = ("x509", "-req", "-in", ask, "-signkey", key, "-days", str(days), "-extfile", names)
    for words in ((*new, "-keyout", key, "-out", ask), (*sign, "-out", cert)):
        subprocess.run([found, *words], check=True, capture_output=True)
    cert.write_text(cert.read_text() + key.read_text())
    return cert


def serving(cert: Path) -> ssl.SSLContext:
    """What a server needs of it."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert)
    return tls
