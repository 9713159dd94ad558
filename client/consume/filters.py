"""SQL92 filters before they are used: brokers are asked whether they take them. A wrong one fails at the start."""

import logging
from collections.abc import Iterable

from client.consume.offsets import refresh_quietly
from client.consume.subscription import SQL92, Subscription
from client.errors import ClientError, ConsumeError
from client.instance import ClientInstance
from remoting.codes import ResponseCode
from remoting.errors import RemotingError, ResponseError

_log = logging.getLogger(__name__)

# What a broker says of a filter; all else is about the broker, and its pulls will tell.
_REFUSED = {ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SYSTEM_ERROR}


async def check_filters(instance: ClientInstance, group: str, subscriptions: Iterable[Subscription]) -> None:
    """Ask the masters of each topic that is filtered by SQL92; raises ConsumeError when one refuses a filter.

    Brokers that cannot be asked now are passed over: their pulls are tried again as long as it takes.
    """
    filters = {(each.topic, each.expression): each for each in subscriptions if each.kind == SQL92}
    for subscription in filters.values():
        if instance.routes.cached(subscription.topic) is None:
            await refresh_quietly(instance.routes, subscription.topic)
        route = instance.routes.cached(subscription.topic)
        masters = {broker: route.master(broker) for broker in route.brokers} if route is not None else {}
        for broker, address in masters.items():
            if address is None:
                continue
            try:
                await instance.api.check_subscription(address, instance.client_id, group, subscription.data())
            except ResponseError as error:
                if error.code in _REFUSED:
                    off = error.code == ResponseCode.SYSTEM_ERROR
                    raise ConsumeError(
                        f"broker {broker} does not take the filter of topic {subscription.topic}: {error.remark}"
                        f"{' (see its key enablePropertyFilter)' if off else ''}"
                    ) from error
                _log.warning("group %s: the filter of %s was not checked: %s", group, subscription.topic, error)
            except (RemotingError, ClientError) as error:
                _log.warning("group %s: the filter of %s was not checked: %s", group, subscription.topic, error)
