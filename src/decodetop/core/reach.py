"""What keeps a server from being reached, in the system's own words, and which certificates are believed."""

from __future__ import annotations

import os
import socket
import ssl

AUTHORITY = "name the file of the authority that signed it: SSL_CERT_FILE=ca.pem"
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
"""openssl/x509_vfy.h: self-signed, itself or at the chain's end; no issuer to be found."""


def trust() -> ssl.SSLContext:
    """The authorities of SSL_CERT_FILE or SSL_CERT_DIR, else the system's; those of certifi where it has none."""
    context = ssl.create_default_context()
    found = ssl.get_default_verify_paths()  # None for what is not there
    if found.cafile is None and found.capath is None and "SSL_CERT_FILE" not in os.environ:
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def root_words(error: BaseException) -> str:
    """What the system said, below the layers that say less (`All connection attempts failed`)."""
    for below in _layers(error):
        if isinstance(below, ssl.SSLError):  # its errno is not the system's
            return _tls_words(below)
        if isinstance(below, OSError) and below.errno is not None:
            said = below.strerror if isinstance(below, socket.gaierror) else os.strerror(below.errno)
            return (said or str(error)).lower()
    return " ".join(str(error).split()) or type(error).__name__


def is_tls(error: BaseException) -> bool:
    """Whether TLS is what failed."""
    return any(isinstance(below, ssl.SSLError) for below in _layers(error))


def certificate_hint(error: BaseException) -> str | None:
    """What to do where the server's certificate is what failed; None where it isn't."""
    for below in _layers(error):
        if isinstance(below, ssl.SSLCertVerificationError):
            unknown = getattr(below, "verify_code", None) in _UNKNOWN_AUTHORITY
            return AUTHORITY if unknown else "renew it, or ask by the name it was made for"
    return None


def is_nobody(error: BaseException) -> bool:
    """Whether the server's system said that nobody listens there. A name, a route or a handshake that fails, or a
    file too many on our side, say nothing of whether a server runs."""
    return any(isinstance(below, ConnectionRefusedError) for below in _layers(error))


def _layers(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        group = isinstance(error, BaseExceptionGroup)
        error = error.exceptions[0] if group else error.__cause__ or error.__context__  # type: ignore[attr-defined]
    return found


_PLAIN = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS: is it http?",
    "UNEXPECTED_EOF_WHILE_READING": "it ended the connection in the middle of TLS",
}


def _tls_words(error: ssl.SSLError) -> str:
    verified = str(getattr(error, "verify_message", "") or "")
    if verified:
        return f"its certificate is not believed: {verified.rstrip('.')}"
    reason = error.reason or str(error) or "TLS"
    return _PLAIN.get(reason, reason.lower().replace("_", " "))
