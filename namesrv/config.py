"""The NameServer's configuration: RocketMQ's keys and defaults, validated once, frozen.

`namesrv.conf` mixes keys of RocketMQ's NamesrvConfig and NettyServerConfig. Those without a counterpart here stand in
namesrv/foreign_keys.py: they are accepted without effect, or refused at start where they ask for what is not available.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from auth.quota_keys import AddressQuotaKeys, check_quotas
from auth.send_age import SEND_SECONDS_KEY
from auth.settings import AUTH_KEYS_BY_HAND, AuthKeys, check_auth, check_users, directory_of, shown_config
from namesrv.foreign_keys import KEYS
from remoting.admission import HTTP_KEY, check_networks
from runtime.config import (
    ConfigError,
    build_config,
    config_values,
    format_properties,
    key_of,
    load_properties,
    replace_config,
)
from runtime.durable import replace_file
from runtime.tls import TlsKeys, check_tls

# Keys that no request may change, whatever configBlackList says.
NEVER_REMOTELY = (
    AUTH_KEYS_BY_HAND
    | frozenset(key_of(field) for field in fields(TlsKeys))
    | frozenset(
        {
            "adminAllowFrom",
            "auditLogPath",
            "bindAddress",
            "httpAllowFrom",
            "httpBindAddress",
            "httpEnable",
            "httpHostNames",
            "httpPort",
            "listenPort",
            "kvConfigPath",
            "configStorePath",
            "configBlackList",
            "rocketmqHome",
        }
    )
)

HTTP_PORT_DISTANCE = 100


@dataclass(frozen=True, slots=True)
class NamesrvConfig(TlsKeys, AuthKeys, AddressQuotaKeys):
    """Keys of RocketMQ's NamesrvConfig and NettyServerConfig that are honoured."""

    # Where.
    bindAddress: str = "127.0.0.1"  # RocketMQ: 0.0.0.0
    # Ours: from where administrative requests are taken, "10.0.0.5,192.168.0.0/16", "*" from everywhere; empty: from
    # this machine. Brokers register from anywhere.
    adminAllowFrom: str = ""
    # Ours: a file of JSON lines about what administrators ask and who is refused; empty: only in the process's log.
    auditLogPath: str = ""
    listenPort: int = 9876  # 0: a free one
    serverChannelMaxIdleTimeSeconds: int = 120
    httpPort: int = 0  # ours: 0 means listenPort+100 (a free one when listenPort is 0)
    httpBindAddress: str = "127.0.0.1"  # ours
    # Ours: who besides this machine may ask for /metrics and /v1/…, in the form of adminAllowFrom; empty: everybody,
    # with authenticationEnabled nobody. /healthz and /readyz answer everybody.
    httpAllowFrom: str = ""
    httpEnable: bool = True  # ours
    httpHostNames: str = ""  # ours: names, separated by ';', that HTTP is asked by besides its addresses
    kvConfigPath: str = ""  # empty: $HOME/namesrv/kvConfig.json
    configStorePath: str = ""  # where remote changes are kept; empty: $HOME/namesrv/namesrv.properties
    configBlackList: str = "configBlackList"  # keys, separated by ';', that no request may change

    # What it answers.
    orderMessageEnable: bool = False  # routes carry the order configuration of their topic
    returnOrderTopicConfigToBroker: bool = True  # a registration is answered with all order topics
    supportActingMaster: bool = False
    enableAllTopicList: bool = True
    enableTopicList: bool = True
    needWaitForService: bool = False  # routes are refused for waitSecondsForService after the start
    waitSecondsForService: int = 45
    deleteTopicWithBrokerRegistration: bool = False  # a registration removes the broker's topics that it lacks
    scanNotActiveBrokerInterval: int = 5000  # milliseconds

    # Limits of ours; beyond them a request is answered with SYSTEM_ERROR and changes nothing.
    topicsPerBrokerMax: int = 1_000_000
    brokersMax: int = 10_000
    brokerBytesMax: int = 256 * 1024 * 1024  # memory for the topics of one broker name: a million of 90 characters
    routeBytesMax: int = 1024 * 1024 * 1024  # memory for the topics of all
    kvEntriesMax: int = 100_000
    kvCharactersMax: int = 64 * 1024 * 1024  # namespaces, keys and values together: the file is written whole
    connectionsPerAddressMax: int = 0  # on a port, of one address; 0: 4,096, of few a quarter; beyond it: closed
    # Broker names whose highest epoch is remembered; 0: twice brokersMax. Beyond it the one without a broker that was
    # heard of longest ago is forgotten, and with it that its old master was deposed.
    epochsMax: int = 0

    def validate(self) -> None:
        """Raise ConfigError for values that cannot be used."""
        for key in ("listenPort", "httpPort"):
            if not 0 <= getattr(self, key) <= 65535:
                raise ConfigError(f"{key}={getattr(self, key)}: it takes a port, 0 to 65535")
        if self.httpPort == 0 and self.httpEnable and self.listenPort > 65535 - HTTP_PORT_DISTANCE:
            raise ConfigError(f"listenPort={self.listenPort}: leaves no listenPort+100 for HTTP; set httpPort")
        for key in (
            "serverChannelMaxIdleTimeSeconds",
            "scanNotActiveBrokerInterval",
            "topicsPerBrokerMax",
            "brokersMax",
            "brokerBytesMax",
            "routeBytesMax",
            "kvEntriesMax",
            "kvCharactersMax",
        ):
            if getattr(self, key) <= 0:
                raise ConfigError(f"{key}={getattr(self, key)}: it takes a number above 0")
        check_tls(self)
        try:
            check_networks(self.adminAllowFrom)
            check_networks(self.httpAllowFrom, HTTP_KEY)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        check_auth(self)
        if self.authenticationSendLifetimeSeconds:
            raise ConfigError(f"{SEND_SECONDS_KEY} is a broker's: nothing is sent to a NameServer, leave it out")
        check_quotas(self, authenticated=False)
        check_users(self, directory_of(self))
        if self.epochs_max() <= self.brokersMax:
            raise ConfigError(
                f"epochsMax={self.epochsMax}: it takes 0, or a number above brokersMax ({self.brokersMax})"
            )
        if self.connectionsPerAddressMax < 0:
            raise ConfigError(
                f"connectionsPerAddressMax={self.connectionsPerAddressMax}: it takes 0, or a number above"
            )
        if self.waitSecondsForService < 0:
            raise ConfigError(f"waitSecondsForService={self.waitSecondsForService}: it takes seconds, 0 or more")

    def epochs_max(self) -> int:
        """Return how many broker names are remembered."""
        return self.epochsMax or 2 * self.brokersMax

    def http_port(self, listening: int) -> int:
        """Return the port of the HTTP face, given the one that the NameServer listens on; 0 is any free one."""
        if self.httpPort:
            return self.httpPort
        return listening + HTTP_PORT_DISTANCE if self.listenPort else 0

    def http_names(self) -> tuple[str, ...]:
        """Return the names that HTTP answers to, besides addresses and localhost."""
        named = tuple(name.strip() for name in self.httpHostNames.split(";"))
        return tuple(filter(None, (*named, self.httpBindAddress, self.bindAddress)))

    def kv_config_path(self) -> Path:
        """Return the file of the KV configuration."""
        return Path(self.kvConfigPath) if self.kvConfigPath else Path.home() / "namesrv" / "kvConfig.json"

    def config_store_path(self) -> Path:
        """Return the file that keeps remote changes of the configuration."""
        return Path(self.configStorePath) if self.configStorePath else Path.home() / "namesrv" / "namesrv.properties"

    def black_list(self) -> frozenset[str]:
        """Return the keys that no request may change."""
        return NEVER_REMOTELY | {key.strip() for key in self.configBlackList.split(";") if key.strip()}


def load_namesrv_config(values: Mapping[str, str]) -> tuple[NamesrvConfig, list[str]]:
    """Make the configuration of the texts of a namesrv.conf; the list names the keys that are unknown.

    Raises ConfigError for values that do not fit and for what is not available.
    """
    KEYS.refuse(values)
    config, unknown = build_config(NamesrvConfig, values)
    return config, [key for key in unknown if key not in KEYS]


class LiveNamesrvConfig:
    """The configuration in force, which an administrator may change while the process runs (code 318).

    What is read once at the start (addresses, ports, paths, limits, intervals) changes with the next start only.
    """

    def __init__(self, config: NamesrvConfig, on_change: Callable[[NamesrvConfig], None] = lambda _now: None) -> None:
        """`on_change` is called after each change, with what is in force."""
        self.now = config
        self._on_change = on_change

    def text(self) -> str:
        """Return every key with its value, as key=value lines."""
        return format_properties(shown_config(config_values(self.now)))

    def update(self, values: Mapping[str, str]) -> list[str]:
        """Put new texts in force, once they are in the file at configStorePath; returns the unknown keys.

        The file keeps its other keys, and takes those of RocketMQ's that have no effect here. Raises ConfigError
        (nothing changed), OSError when the file cannot be written.
        """
        KEYS.refuse(values)
        changed, foreign = replace_config(self.now, values)
        unknown = [key for key in foreign if key not in KEYS]
        path = self.now.config_store_path()
        kept = load_properties(path) if path.exists() else {}
        kept.update({key: text for key, text in values.items() if key not in unknown})
        replace_file(path, format_properties(kept).encode())
        self.now = changed
        self._on_change(changed)
        return unknown
