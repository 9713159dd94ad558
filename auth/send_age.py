"""How old a signed send may be: a signature never ends, and who has recorded a send could send it again for ever.

Where all sends are idempotent for as long (idempotentForAllProducers, idempotentWindowSeconds), one that is sent again
is either answered with what became of the first, or is refused here: nothing is stored twice, over failover too.
"""

from collections.abc import Callable

from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.registry import SendMessageRequestHeader, SendMessageRequestHeaderV2

SEND_SECONDS_KEY = "authenticationSendLifetimeSeconds"
# Too short a time refuses clients whose clocks are a little off.
SEND_SECONDS = range(10, 86_400 + 1)
Sent = SendMessageRequestHeader | SendMessageRequestHeaderV2

DATED: dict[int, type[Sent]] = {
    RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
    RequestCode.SEND_REPLY_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendMessageRequestHeaderV2,
}
"""Code → the header that says when the send was made."""


def why_too_old(request: Command, header: type[Sent], seconds: int, clock: Callable[[], float]) -> str | None:
    """Return why a send is refused that was made too long before or after `clock` (Unix time, s), else None.

    Raises HeaderError.
    """
    age = clock() - request.header(header).bornTimestamp / 1000
    if abs(age) <= seconds:
        return None
    made = f"{age:.0f} s ago" if age > 0 else f"{-age:.0f} s from now"
    return f"the send was made {made} by this broker's clock, {SEND_SECONDS_KEY}={seconds}: it may be a replay"
