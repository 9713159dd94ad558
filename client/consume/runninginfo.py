"""What a consumer tells of itself when asked (code 307), under the names that mqadmin reads."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from client.consume.caller import TopicCounters
from client.consume.push_queue import AssignedQueue
from client.consume.rewinds import Rewinds
from client.instance import ClientInstance
from remoting.bodies.registry import ConsumerRunningInfo, MessageQueue, SubscriptionData
from remoting.codes import VERSION_NAME


def running_info(
    instance: ClientInstance,
    subscriptions: Sequence[SubscriptionData],
    queues: Sequence[AssignedQueue],
    counters: Mapping[str, TopicCounters],
    rewinds: Rewinds,
    *,
    started_ms: int,
    orderly: bool,
    concurrency: int,
    locked: Callable[[MessageQueue], bool] | None,
) -> ConsumerRunningInfo:
    """Return the report; times in ms, rates per second since the start."""
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(instance.nameservers.addresses),
            "PROP_CLIENT_VERSION": VERSION_NAME,
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": "true" if orderly else "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
            "PROP_THREADPOOL_CORE_SIZE": str(concurrency),
            "PROP_REWINDS": str(rewinds.count),
        },
        subscriptionSet=list(subscriptions),
        mqTable={assigned.queue: _queue_info(assigned, locked) for assigned in queues},
        statusTable={topic: _status(counter, started_ms) for topic, counter in counters.items()},
    )


def polling_info(
    instance: ClientInstance, subscriptions: Sequence[SubscriptionData], rewinds: Rewinds
) -> ConsumerRunningInfo:
    """Return the report of a consumer that is polled."""
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(instance.nameservers.addresses),
            "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
            "PROP_REWINDS": str(rewinds.count),
        },
        subscriptionSet=list(subscriptions),
    )


def _queue_info(assigned: AssignedQueue, locked: Callable[[MessageQueue], bool] | None) -> dict[str, Any]:
    unfinished = assigned.unfinished
    lowest = unfinished.lowest
    return {
        "commitOffset": assigned.context.offsets.noted(assigned.queue) or 0,
        "cachedMsgMinOffset": 0 if lowest is None else lowest,
        "cachedMsgMaxOffset": max(unfinished.highest, 0) if lowest is not None else 0,
        "cachedMsgCount": len(unfinished),
        "cachedMsgSizeInMiB": unfinished.size_bytes // (1024 * 1024),
        "transactionMsgMinOffset": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgCount": 0,
        "locked": locked is not None and locked(assigned.queue),
        "tryUnlockTimes": 0,
        "lastLockTimestamp": 0,
        "droped": unfinished.dropped,
        "lastPullTimestamp": assigned.last_pull_ms,
        "lastConsumeTimestamp": assigned.last_consume_ms,
    }


def _status(counter: TopicCounters, started_ms: int) -> dict[str, Any]:
    seconds = max(time.time() * 1000 - started_ms, 1.0) / 1000
    done = counter.succeeded + counter.failed
    return {
        "pullRT": 0.0,
        "pullTPS": done / seconds,
        "consumeRT": counter.busy_ms / done if done else 0.0,
        "consumeOKTPS": counter.succeeded / seconds,
        "consumeFailedTPS": counter.failed / seconds,
        "consumeFailedMsgs": counter.failed,
    }
