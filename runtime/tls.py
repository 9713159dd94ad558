"""TLS of a process: RocketMQ's keys, the certificates behind them, and contexts that follow the files as they change.

A server may take TLS and plain connections on one port (`tls.server.mode`, see runtime/tls_door.py). Certificates are
read again when their files change, so that a renewed one is served without a restart; what cannot be read then leaves
the old one in place, and is said.
"""

import contextlib
import ipaddress
import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runtime.config import ConfigError
from runtime.listening import is_loopback

_log = logging.getLogger(__name__)

DISABLED, PERMISSIVE, ENFORCING = "disabled", "permissive", "enforcing"
MODES = (DISABLED, PERMISSIVE, ENFORCING)
_SHOWN = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
# Seconds between two looks at whether files have changed.
LOOK_SECONDS = 1.0
# A handshake that is not over by then is given up, seconds.
HANDSHAKE_SECONDS = 10.0

# What OpenSSL says, and what it means here.
_WORDS = {
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS",
    "HTTP_REQUEST": "the other side does not speak TLS but HTTP",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the authority of this side's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not take this side's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this side's certificate has expired",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side wants a certificate, and this side shows none",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other side wants a certificate, or another version of TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, which tls.server.need.client.auth=require wants",
}


@dataclass(frozen=True)
class TlsKeys:
    """Keys of RocketMQ's TlsSystemConfig, and `useTLS`; the dotted ones stand in the same file here."""

    useTLS: bool = False  # for connections that this process makes to NameServers and brokers
    tlsServerMode: str = field(default=PERMISSIVE, metadata={"key": "tls.server.mode"})
    tlsServerCertPath: str = field(default="", metadata={"key": "tls.server.certPath"})
    tlsServerKeyPath: str = field(default="", metadata={"key": "tls.server.keyPath"})
    tlsServerKeyPassword: str = field(default="", metadata={"key": "tls.server.keyPassword", "secret": True})
    # Whether who connects shows a certificate, of this authority: none, optional, require.
    tlsServerNeedClientAuth: str = field(default="none", metadata={"key": "tls.server.need.client.auth"})
    tlsServerTrustCertPath: str = field(default="", metadata={"key": "tls.server.trustCertPath"})
    # RocketMQ: false, which takes any certificate from anybody.
    tlsClientAuthServer: bool = field(default=True, metadata={"key": "tls.client.authServer"})
    tlsClientTrustCertPath: str = field(default="", metadata={"key": "tls.client.trustCertPath"})
    tlsClientCertPath: str = field(default="", metadata={"key": "tls.client.certPath"})
    tlsClientKeyPath: str = field(default="", metadata={"key": "tls.client.keyPath"})
    tlsClientKeyPassword: str = field(default="", metadata={"key": "tls.client.keyPassword", "secret": True})


@dataclass(frozen=True, slots=True)
class ClientTls:
    """How a client uses TLS: whom it trusts, and what it shows of itself. Paths of PEM files.

    ca: the authority that servers' certificates are of; empty: those that this machine trusts.
    cert, key, password: its own certificate, where servers want one.
    check_host: whether a certificate must name the address that was asked for.
    verify: False takes any certificate from anybody: nobody reads along, but whoever answers is believed.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    password: str = field(default="", repr=False)
    check_host: bool = True
    verify: bool = True


def check_tls(keys: TlsKeys) -> None:
    """Raise ConfigError when the keys cannot be used together."""
    if keys.tlsServerMode not in MODES:
        raise ConfigError(f"tls.server.mode={keys.tlsServerMode}: it takes {', '.join(MODES)}")
    if keys.tlsServerNeedClientAuth not in _SHOWN:
        raise ConfigError(f"tls.server.need.client.auth={keys.tlsServerNeedClientAuth}: it takes {', '.join(_SHOWN)}")
    if bool(keys.tlsServerCertPath) != bool(keys.tlsServerKeyPath):
        raise ConfigError("tls.server.certPath and tls.server.keyPath are of use together only")
    if bool(keys.tlsClientCertPath) != bool(keys.tlsClientKeyPath):
        raise ConfigError("tls.client.certPath and tls.client.keyPath are of use together only")
    if keys.tlsServerMode == ENFORCING and not keys.tlsServerCertPath:
        raise ConfigError("tls.server.mode=enforcing: it takes tls.server.certPath and tls.server.keyPath")
    if keys.tlsServerNeedClientAuth != "none" and not keys.tlsServerTrustCertPath:
        raise ConfigError(
            f"tls.server.need.client.auth={keys.tlsServerNeedClientAuth}: it takes tls.server.trustCertPath, the "
            "authority that clients' certificates are of"
        )


def enforces_tls(keys: TlsKeys) -> bool:
    """Tell whether plain connections are refused."""
    return keys.tlsServerMode == ENFORCING


def asks_certificates(keys: TlsKeys) -> bool:
    """Tell whether nobody connects without a certificate of tls.server.trustCertPath."""
    return enforces_tls(keys) and keys.tlsServerNeedClientAuth == "require"


def tls_warnings(keys: TlsKeys) -> Iterator[str]:
    """Yield what works, and is probably not meant."""
    if keys.useTLS and not keys.tlsClientAuthServer:
        yield "tls.client.authServer=false: any certificate is believed, so whoever is in between may read along"
    for key, path in (
        ("tls.server.keyPath", keys.tlsServerKeyPath),
        ("tls.client.keyPath", keys.tlsClientKeyPath),
    ):
        if path and (found := _stat(path)) is not None and found.st_mode & 0o077:
            yield f"{key}={path}: others of this machine may read it; chmod 600 {path}"


class Contexts:
    """One side's context, made anew when one of its files changes."""

    def __init__(self, make: Callable[[], ssl.SSLContext], paths: Sequence[str]) -> None:
        """Raise ConfigError when the files cannot be used."""
        self._make = make
        self._paths = [path for path in paths if path]
        self._seen = self._stamps()
        self._looked = time.monotonic()
        self._context = make()

    def current(self) -> ssl.SSLContext:
        """Return the context of the files as they are now."""
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            stamps = self._stamps()
            if stamps != self._seen:
                self._seen = stamps
                try:
                    self._context = self._make()
                    _log.info("certificates were read again: %s", ", ".join(self._paths))
                except ConfigError as error:
                    _log.error("changed certificates cannot be used, those before them stay: %s", error)
        return self._context

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._paths]


def current(contexts: Contexts | None) -> ssl.SSLContext | None:
    """Return the context to connect with now, None for a plain connection."""
    return None if contexts is None else contexts.current()


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How a port takes TLS."""

    contexts: Contexts
    enforcing: bool
    """Whether plain connections are refused."""


def server_tls(keys: TlsKeys) -> ServerTls | None:
    """Return how ports take TLS, None when they do not. Raises ConfigError."""
    if keys.tlsServerMode == DISABLED or not keys.tlsServerCertPath:
        return None

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load(context, "tls.server", keys.tlsServerCertPath, keys.tlsServerKeyPath, keys.tlsServerKeyPassword)
        if keys.tlsServerNeedClientAuth != "none":
            context.verify_mode = _SHOWN[keys.tlsServerNeedClientAuth]
            _trust(context, "tls.server.trustCertPath", keys.tlsServerTrustCertPath)
        return context

    paths = (keys.tlsServerCertPath, keys.tlsServerKeyPath, keys.tlsServerTrustCertPath)
    return ServerTls(Contexts(make, paths), keys.tlsServerMode == ENFORCING)


def http_tls(keys: TlsKeys, host: str) -> ServerTls | None:
    """Return how HTTP at an address takes TLS: as the other ports do, but this machine may always ask without it."""
    tls = server_tls(keys)
    return replace(tls, enforcing=False) if tls is not None and is_loopback(host) else tls


def outgoing_tls(keys: TlsKeys) -> Contexts | None:
    """Return what a server's own connections use, None for plain ones. Raises ConfigError."""
    if not keys.useTLS:
        return None
    return client_contexts(
        ClientTls(
            keys.tlsClientTrustCertPath,
            keys.tlsClientCertPath,
            keys.tlsClientKeyPath,
            keys.tlsClientKeyPassword,
            keys.tlsClientAuthServer,
            keys.tlsClientAuthServer,
        ),
        "tls.client",
    )


def client_contexts(tls: ClientTls, name: str = "tls") -> Contexts:
    """Return what connections of a client use; `name` is how errors call its settings. Raises ConfigError."""

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = tls.check_host and tls.verify
        if not tls.verify:
            context.verify_mode = ssl.CERT_NONE
        elif tls.ca:
            _trust(context, f"{name}: the authority", tls.ca)
        else:
            context.load_default_certs()
        if tls.cert:
            _load(context, name, tls.cert, tls.key or tls.cert, tls.password)
        return context

    return Contexts(make, (tls.ca, tls.cert, tls.key))


def names_host(certificate: Mapping[str, Any], host: str) -> bool:
    """Tell whether a certificate, as `getpeercert` gives it, names a host: by the rules by which a client's TLS does.

    For the side that was connected to, whose TLS does not look at names.
    """
    names = certificate.get("subjectAltName", ())
    with contextlib.suppress(ValueError):
        wanted = ipaddress.ip_address(host)
        return any(kind == "IP Address" and ipaddress.ip_address(name) == wanted for kind, name in names)
    given = [name for kind, name in names if kind == "DNS"]
    # The common name counts where no other name is given.
    given = given or [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return any(_is_named(host.lower().rstrip("."), name.lower().rstrip(".")) for name in given)


def _is_named(host: str, name: str) -> bool:
    """Compare a host with a name, which may have an asterisk in the place of its first part."""
    first, _, rest = name.partition(".")
    return host == name or (first == "*" and "." in rest and host.partition(".")[2] == rest)


def tls_words(error: BaseException) -> str:
    """Return what an error means, in words for a person; of others than TLS what they say themselves."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate is not believed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return _WORDS.get(error.reason or "", f"TLS: {error.reason or error}")
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _load(context: ssl.SSLContext, name: str, cert: str, key: str, password: str) -> None:
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(cert, key, password=password)
    except OSError as error:
        why = tls_words(error)
        raise ConfigError(f"{name}.certPath={cert}, {name}.keyPath={key}: {why}") from error


def _trust(context: ssl.SSLContext, name: str, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise ConfigError(f"{name}={path}: {tls_words(error)}") from error


def _stamp(path: str) -> tuple[int, int, int] | None:
    found = _stat(path)
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


def _stat(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError:
        return None
