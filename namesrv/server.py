"""The NameServer process: builds every part, holds the one table request code → handler."""

import asyncio
import logging
from pathlib import Path

from auth.audit_bodies import shown_body
from auth.guard import AccessGuard
from auth.needs import NAMESRV
from auth.quotas import NAMESRV_COUNTS, QuotaGuard
from auth.settings import directory_of, told
from namesrv.config import LiveNamesrvConfig, NamesrvConfig
from namesrv.handlers import RouteHandlers
from namesrv.handlers_admin import ConfigHandlers, EpochHandlers, TopicHandlers
from namesrv.kv import KVConfig
from namesrv.routes import Address, RouteTable
from namesrv.status import StatusPages
from remoting.admission import Admission, http_judge
from remoting.audit import ASKED_BY, audited
from remoting.limits import server_limits
from remoting.server import Connection, RemotingServer
from runtime.clock import Clock, SystemClock
from runtime.http import HttpFace
from runtime.listening import exposed, is_loopback, named_address
from runtime.log import audit_to
from runtime.loop import run, stop_event
from runtime.metrics import Metrics
from runtime.tasks import Tasks
from runtime.tls import enforces_tls, http_tls, server_tls, tls_warnings

_log = logging.getLogger(__name__)


class NameServer:
    """One NameServer. `port` and `http_port` tell where it listens once it is started (http_port 0: no HTTP)."""

    def __init__(self, config: NamesrvConfig, clock: Clock | None = None) -> None:
        """Read the KV configuration; raises ConfigError when its file cannot be read."""
        clock = SystemClock() if clock is None else clock
        self._quotas = QuotaGuard(config, NAMESRV_COUNTS, clock.monotonic)
        self._config = LiveNamesrvConfig(config, self._quotas.take)
        self._kv = KVConfig(
            config.kv_config_path(), entries_max=config.kvEntriesMax, characters_max=config.kvCharactersMax
        )
        self.routes = RouteTable(
            clock,
            topics_per_broker_max=config.topicsPerBrokerMax,
            brokers_max=config.brokersMax,
            epochs_max=config.epochs_max(),
            broker_bytes_max=config.brokerBytesMax,
            bytes_max=config.routeBytesMax,
        )
        self._route_handlers = RouteHandlers(self.routes, self._kv, self._config, clock)
        topic_handlers = TopicHandlers(self.routes, self._config)
        config_handlers = ConfigHandlers(self._kv, self._config)
        table = audited(
            {
                **self._route_handlers.table(),
                **topic_handlers.table(),
                **config_handlers.table(),
                **EpochHandlers(self.routes).table(),
            },
            Admission(config.adminAllowFrom),
            shown_body,
        )
        self._guard: AccessGuard | None = None
        limited = self._quotas.limited(table)
        if config.authenticationEnabled:
            self._guard = AccessGuard(config, directory_of(config), NAMESRV, "", frozenset({ASKED_BY}))
            table, limited = self._guard.guarded(table), self._guard.guarded(limited)
        self._handlers = self._quotas.served(table, limited)
        self._metrics = Metrics()
        self._pages = StatusPages(
            self.routes, self._kv, self._config, clock, lambda: [] if self._server is None else [self._server]
        )
        self._metrics.show(lambda: [*self._pages.figures(), *self._quotas.figures()])
        self._tasks = Tasks("namesrv")
        self._server: RemotingServer | None = None
        self._http: HttpFace | None = None
        self.port = 0
        self.http_port = 0

    async def start(self) -> None:
        """Listen and watch over the brokers; raises OSError when an address cannot be had, nothing is open then."""
        config = self._config.now
        idle = float(config.serverChannelMaxIdleTimeSeconds)
        limits = server_limits(idle, per_address=config.connectionsPerAddressMax)
        self._server = RemotingServer(
            self._handlers,
            name="namesrv",
            limits=limits,
            on_close=self._closed,
            on_unsupported=None if self._guard is None else self._guard.unserved,
            tls=server_tls(config),
            signed=config.authenticationEnabled,
        )
        try:
            with named_address("listenPort", config.bindAddress, config.listenPort):
                await self._server.start(config.bindAddress, config.listenPort)
            self.port = self._server.port
            if config.httpEnable:
                await self._start_http(config)
        except OSError:
            await self.close()
            raise
        self._tasks.every(config.scanNotActiveBrokerInterval / 1000, self.scan, "scan of silent brokers")

    async def close(self) -> None:
        """Stop listening and end everything; the tables die with the process, as they may."""
        await self._tasks.close()
        if self._http is not None:
            await self._http.close()
            self._http = None
        server, self._server = self._server, None
        if server is not None:
            await server.close()
        await self._kv.close()

    def scan(self) -> None:
        """Forget the brokers that were silent for too long, and close their connections."""
        for who, link in self.routes.expire():
            self._pages.lost(expired=True)
            _log.warning("broker at %s is silent for too long and forgotten", who.address)
            if isinstance(link, Connection):
                link.close()

    async def _start_http(self, config: NamesrvConfig) -> None:
        self._http = HttpFace(
            self._metrics,
            self._not_ready,
            {"/v1/status": self._pages.status, "/v1/routes": self._pages.routes},
            names=config.http_names(),
            judge=http_judge(config.httpAllowFrom, guarded=config.authenticationEnabled),
        )
        port = config.http_port(self.port)
        with named_address("httpPort", config.httpBindAddress, port):
            await self._http.start(config.httpBindAddress, port, http_tls(config, config.httpBindAddress))
        self.http_port = self._http.port

    def _not_ready(self) -> str | None:
        if self._server is None:
            return "not listening"
        return self._route_handlers.not_ready()

    def _closed(self, connection: Connection) -> None:
        self._quotas.closed(connection)
        gone: list[Address] = self.routes.disconnect(connection)
        if self._server is None:
            return  # our own stop closes every connection: nobody is lost
        for who in gone:
            self._pages.lost(expired=False)
            _log.warning("broker at %s is forgotten: its connection closed", who.address)


def run_namesrv(config: NamesrvConfig) -> None:
    """Run a NameServer until SIGTERM or SIGINT; raises ConfigError or OSError when it cannot start."""
    run(_serve(config))


async def _serve(config: NamesrvConfig) -> None:
    stop: asyncio.Event = stop_event()
    if config.auditLogPath:
        audit_to(Path(config.auditLogPath))
    server = NameServer(config)
    await server.start()
    _log.info("NameServer serves on port %d, HTTP on port %d", server.port, server.http_port)
    _log.info("%s", told(config))
    why = exposed(config.bindAddress, guarded=config.authenticationEnabled, encrypted=enforces_tls(config))
    if is_loopback(config.bindAddress):
        _log.info("only this machine reaches bindAddress=%s: set another one where others are to", config.bindAddress)
    elif why is not None:
        _log.warning("%s", why)
    for words in tls_warnings(config):
        _log.warning("%s", words)
    try:
        await stop.wait()
        _log.info("NameServer stops")
    finally:
        await server.close()
