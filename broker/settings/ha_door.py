"""Whether a master opens its HA port, and to whom: whoever is let in there gets every message, unsigned.

A slave may come to a master that has run for long, so on loopback the port is open as in RocketMQ. Where others reach
it, it is open when those who come prove something (haSecretFile, or certificates that are asked for), or when the
configuration says that slaves are expected; with access control, only in the first case.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from broker.settings.pair_keys import HA_CLOSED, SLAVE, SYNC_MASTER, ClassicKeys
from broker.settings.secret_files import secret_paths
from runtime.config import ConfigError
from runtime.listening import is_loopback
from runtime.tls import TlsKeys, asks_certificates

_REMEDY = (
    "name a file with the same secret in haSecretFile of master and slaves (for example made with: openssl rand -hex "
    "32), or ask for certificates (tls.server.mode=enforcing with tls.server.need.client.auth=require)"
)


@dataclass(frozen=True, slots=True)
class HaDoor:
    """What the configuration of a master says of its HA port."""

    host: str
    """Where it is bound."""
    closed: bool
    """By the key itself: -1."""
    expected: bool
    """The configuration, or a command, says that there are slaves."""
    proved: bool
    """Who comes must know a secret, or show a certificate."""
    guarded: bool
    """With access control."""

    def refusal(self) -> str | None:
        """Return why a broker does not start with it, None when nothing speaks against it."""
        if self.closed or self.proved or not self.expected or not self.guarded or is_loopback(self.host):
            return None
        return (
            f"authenticationEnabled=true, but whoever reaches the HA port at {self.host} gets every message without a "
            f"signature: {_REMEDY}, or set haListenPort=-1 where no slave is to come"
        )

    @property
    def opens(self) -> bool:
        """Tell whether the port is opened."""
        return not self.closed and (self.proved or is_loopback(self.host) or (self.expected and not self.guarded))

    def words(self) -> Iterator[tuple[int, str]]:
        """Yield what a start says of it, and how loudly."""
        if self.closed or self.proved:
            return
        if not self.opens:
            or_else = "" if self.guarded else "; or name the port in haListenPort"
            why = f"no port for slaves is open: whoever reached it at {self.host} would get every message."
            level = logging.WARNING if self.expected else logging.INFO
            yield level, f"{why} Where slaves are to come, {_REMEDY}{or_else}"
        elif not is_loopback(self.host):
            why = f"whoever reaches the HA port at {self.host} gets every message, and counts as a slave:"
            yield logging.WARNING, f"{why} {_REMEDY}"
        elif self.guarded:
            why = "access control does not guard the HA port: every user of this machine gets every message there."
            yield logging.WARNING, f"{why} To end that, {_REMEDY}; or set haListenPort=-1 where no slave is to come"


def ha_door(keys: ClassicKeys, tls: TlsKeys, host: str, *, guarded: bool, expected: bool = False) -> HaDoor:
    """Return what the keys say; `expected`: a command has made this broker a master among others."""
    return HaDoor(
        host,
        closed=keys.haListenPort == HA_CLOSED,
        expected=expected or keys.haListenPort > 0 or keys.brokerRole == SYNC_MASTER,
        proved=bool(secret_paths(keys.haSecretFile)) or asks_certificates(tls),
        guarded=guarded,
    )


def check_ha_door(keys: ClassicKeys, door: HaDoor) -> None:
    """Raise ConfigError when a master would give its log away; a slave opens nothing as long as it is one."""
    why = None if keys.brokerRole == SLAVE else door.refusal()
    if why is not None:
        raise ConfigError(why)
