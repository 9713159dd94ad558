"""runtime/listening.py: what was accepted is somebody's, however closely the end follows."""

import asyncio
import socket
from collections.abc import Callable, Coroutine

import pytest

from runtime import loop as uv
from runtime.listening import exposed, is_loopback, origin, stop_accepting

Runner = Callable[[Coroutine[None, None, None]], None]


class Noted(asyncio.Protocol):
    def __init__(self, come: list[asyncio.BaseTransport]) -> None:
        self._come = come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._come.append(transport)


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("runner", [asyncio.run, uv.run])
def test_what_was_accepted_has_come_when_nothing_is_accepted_any_more(runner: Runner, turns: int) -> None:
    async def main() -> None:
        errors: list[dict[str, object]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        come: list[asyncio.BaseTransport] = []
        server = await loop.create_server(lambda: Noted(come), "127.0.0.1", 0)
        # Without a turn of the loop in between: the kernel lets it in, and the loop accepts it `turns` turns later.
        with socket.create_connection(server.sockets[0].getsockname()):
            for _ in range(turns):
                await asyncio.sleep(0)
            await stop_accepting(server)
            at_the_end = len(come)
            for _ in range(10):
                await asyncio.sleep(0)
            assert not errors
            assert len(come) == at_the_end
            assert turns < 2 or at_the_end == 1
            for transport in come:
                transport.abort()  # type: ignore[attr-defined]
            await server.wait_closed()

    runner(main())


async def test_nobody_is_let_in_afterwards() -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Noted([]), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    await stop_accepting(server)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "localhost"])
def test_what_only_this_machine_reaches_is_exposed_to_nobody(host: str) -> None:
    assert is_loopback(host)
    assert exposed(host) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "broker-1"])
def test_an_address_that_others_reach_is_said_to_have_no_access_control(host: str) -> None:
    assert not is_loopback(host)
    assert f"no access control: whoever reaches {host} may" in (exposed(host) or "")
    assert f"whoever is on the way to {host} reads along" in (exposed(host, guarded=True) or "")


def test_who_encrypts_and_asks_for_signatures_is_exposed_to_nobody() -> None:
    assert exposed("0.0.0.0", guarded=True, encrypted=True) is None
    # TLS alone says nothing of who may do what.
    assert "no access control" in (exposed("0.0.0.0", encrypted=True) or "")


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_what_an_address_counts_as(host: str, counted: str) -> None:
    assert origin(host) == counted
