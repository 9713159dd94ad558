"""The end of a listening socket, in good order."""

import asyncio

# From an accept to the connection at its protocol: one turn of the loop makes the transport, the next calls
# connection_made.
_TURNS = 2


async def stop_accepting(server: asyncio.Server) -> None:
    """Listen no more; returns when all that was accepted before is at its protocol (with TLS: in its handshake).

    `close` alone does not do: asyncio asserts that the server of a connection it accepted in the same turn is open, and
    a connection that comes to its protocol after the owner has ended all of them outlives the owner.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    server.close()
