"""A broker as a process: runs until a signal or until its disk fails, and begins anew where only that helps."""

import asyncio
import gc
import logging
import os
from pathlib import Path

from broker.server import Broker
from broker.settings.config import BrokerConfig
from broker.settings.restart import Reload
from runtime.config import ConfigError
from runtime.log import audit_to
from runtime.loop import run, stop_event
from store.config import StoreConfig

_log = logging.getLogger(__name__)

# Objects made between two rounds of the garbage collector: some thousand messages.
GC_ALLOCATIONS = 50_000


def run_broker(
    broker_config: BrokerConfig, store_config: StoreConfig, *, force: bool = False, reload: Reload | None = None
) -> None:
    """Run a broker until SIGTERM or SIGINT; raises what Broker.start raises when it cannot start.

    `force`: as a single broker on the store of a group that has not ended. `reload` reads the configuration again
    before each further start in this process; without it the first one stays.

    A disk that fails ends the process at once with exit code 1: nothing may touch the store any more, and a thread
    may hang in the kernel. A broker that is to be another one, or on another store, is closed, and started again in
    this process: see broker/settings/restart.py.
    """
    if force and broker_config.enableDLegerCommitLog:
        raise ConfigError("--force makes a group's store a single broker's: it goes with enableDLegerCommitLog=false")
    if broker_config.auditLogPath:
        audit_to(Path(broker_config.auditLogPath))
    run(_serve_until_stopped(broker_config, store_config, force=force, reload=reload))


async def _serve_until_stopped(
    broker_config: BrokerConfig, store_config: StoreConfig, *, force: bool, reload: Reload | None
) -> None:
    stop = stop_event()
    while True:
        broker = Broker(broker_config, store_config, force=force, on_loaded=_freeze)
        await _start(broker, stop)
        await _first(stop, broker.stopped)
        if broker.failure is not None:
            logging.shutdown()
            os._exit(1)
        _log.info("broker %s stops", broker_config.name())
        await broker.close()
        if stop.is_set() or broker.reborn is None:
            return
        if broker.reborn.act is not None:
            await asyncio.to_thread(broker.reborn.act, store_config)
        if reload is not None:
            broker_config, store_config = await asyncio.to_thread(reload)
            # What was given up by force is given up; what the broker is now may be a member again.
            force = force and not broker_config.enableDLegerCommitLog
        gc.unfreeze()


async def _start(broker: Broker, stop: asyncio.Event) -> None:
    """Start, unless a signal comes first: a member that is reset may be at it for long."""
    starting = asyncio.create_task(broker.start(), name="start")
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
        if starting.cancelled():
            return
    starting.result()
    # Little more, and no collection: the other members and clients are there by now.
    gc.freeze()


def _freeze() -> None:
    """Keep what has been made so far out of the collections.

    It lives as long as the process, and messages leave no cycles behind: without this, large tables are looked through
    again and again, which stops the traffic each time. Before there is any: this collection takes a tenth of a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 20, 50)


async def _first(*events: asyncio.Event) -> None:
    """Return when one of the events is set."""
    waiters = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    for waiter in waiters:
        waiter.cancel()
