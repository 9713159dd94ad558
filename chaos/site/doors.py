"""What a secured site refuses: each of its ports is tried as strangers would try it, and what they were told is kept.

A run that says it was secured has tried: before its load, and behind its last fault, when all members have been started
again. A stranger is who has the authority's certificate, which is no secret, and lacks one thing of the others.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from chaos.host.security import Security
from remoting.address import parse_address
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import RemotingError
from remoting.haframes import report
from remoting.signing import Credentials
from runtime.tls import ClientTls, client_contexts, tls_words

NAMESRV, CLIENTS, RAFT, HA = "namesrv", "clients", "raft", "ha"
Doors = Mapping[str, Mapping[str, str]]
"""Server → which port of it → its address."""
# What changes nothing, and is not open to everybody: where topics are, a NameServer tells whoever asks.
_ASKED = {NAMESRV: RequestCode.GET_NAMESRV_CONFIG, CLIENTS: RequestCode.GET_BROKER_RUNTIME_INFO}
ANSWER_S = 5.0
# A connection that is still there after so many seconds was not refused: servers that refuse do it at once.
CLOSED_S = 1.5
# Of what each is told: one who is refused for another reason has not shown that he is refused for this one.
TLS_ONLY, NOBODY, WRONG_KEY = "takes TLS only", "username cannot be null", "check signature failed"


class Reception(StrEnum):
    """What became of a stranger."""

    REFUSED = "refused"
    TAKEN = "taken"
    UNCLEAR = "unclear"


class Attempt(NamedTuple):
    """One stranger at one port."""

    where: str
    reception: Reception
    said: str


class _Stranger(NamedTuple):
    how: str
    tls: ClientTls | None
    credentials: Credentials | None
    told: str


async def try_doors(doors: Doors, security: Security) -> dict[str, list[str]]:
    """Try all ports in every way; returns what became of strangers → what was tried and said, as run.json keeps it."""
    trials = [
        _tried(f"{server} {door}", door, address, security)
        for server, ports in doors.items()
        for door, address in ports.items()
    ]
    told: dict[str, list[str]] = {reception.value: [] for reception in Reception}
    for attempts in await asyncio.gather(*trials):
        for attempt in attempts:
            told[attempt.reception.value].append(f"{attempt.where}: {attempt.said}")
    return told


async def _tried(where: str, door: str, address: str, security: Security) -> Sequence[Attempt]:
    if door in _ASKED:
        return await _asked(where, address, _ASKED[door], security)
    trusting = security.trusting()
    if door == RAFT:
        return [await asyncio.to_thread(_without_certificate, where, address, trusting)]
    return await asyncio.to_thread(_as_slave, where, address, trusting)


async def _asked(where: str, address: str, code: RequestCode, security: Security) -> Sequence[Attempt]:
    """Ask plainly, without a signature, and with one by another secret key."""
    tls, user = ClientTls(str(security.authority)), security.access_key
    strangers = (
        _Stranger("signed, without TLS", None, Credentials(user, security.secret_key), TLS_ONLY),
        _Stranger("unsigned", tls, None, NOBODY),
        _Stranger("signed by another key", tls, Credentials(user, f"not-{security.secret_key}"), WRONG_KEY),
    )
    return [await _ask(f"{where}, {stranger.how}", address, code, stranger) for stranger in strangers]


async def _ask(where: str, address: str, code: RequestCode, stranger: "_Stranger") -> Attempt:
    contexts = None if stranger.tls is None else client_contexts(stranger.tls)
    client = RemotingClient(name="stranger", tls=contexts, credentials=stranger.credentials)
    try:
        answer = await client.invoke(address, Command.request(code), ANSWER_S)
    except RemotingError as error:
        return Attempt(where, Reception.UNCLEAR, str(error))
    finally:
        await client.close()
    said = answer.remark or f"code {answer.code}"
    if answer.code == ResponseCode.SUCCESS:
        return Attempt(where, Reception.TAKEN, "answered")
    return Attempt(where, Reception.REFUSED if stranger.told in said else Reception.UNCLEAR, said)


def _without_certificate(where: str, address: str, trusting: ssl.SSLContext) -> Attempt:
    """Come to a Raft port, whose members show one another certificates, with none."""
    where = f"{where}, without a certificate"
    try:
        with _connected(address) as plain, _shaken(plain, address, trusting) as connection:
            return _closed(where, connection)
    except _NoTlsError as error:
        return Attempt(where, Reception.TAKEN, str(error))
    except OSError as error:
        return Attempt(where, Reception.UNCLEAR, tls_words(error))


def _as_slave(where: str, address: str, trusting: ssl.SSLContext) -> Sequence[Attempt]:
    """Come to an HA port as a slave, plainly and with TLS but without the secret.

    Nothing is tried at who has none open, as slaves do.
    """
    how = f"{where}, without TLS"
    try:
        with _connected(address) as plain, _shaken(plain, address, trusting) as connection:
            connection.sendall(report(0))
            secretless = _closed(f"{where}, without the secret", connection)
        with _connected(address) as plain:
            plain.sendall(report(0))
            return [secretless, _closed(how, plain)]
    except ConnectionRefusedError:
        return []
    except _NoTlsError as error:
        return [Attempt(how, Reception.TAKEN, str(error))]
    except OSError as error:
        return [Attempt(how, Reception.UNCLEAR, tls_words(error))]


class _NoTlsError(Exception):
    """The port does not speak TLS, or not by the site's authority."""


def _connected(address: str) -> socket.socket:
    return socket.create_connection(parse_address(address), ANSWER_S)


def _shaken(plain: socket.socket, address: str, trusting: ssl.SSLContext) -> ssl.SSLSocket:
    """Shake hands: in TLS 1.3 the client's part is over before the server has looked for its certificate."""
    try:
        return trusting.wrap_socket(plain, server_hostname=parse_address(address)[0])
    except TimeoutError:
        raise
    except OSError as error:
        raise _NoTlsError(f"no TLS by this authority: {tls_words(error)}") from error


def _closed(where: str, connection: socket.socket) -> Attempt:
    """Wait until the other side closes, as it does with who is refused."""
    connection.settimeout(CLOSED_S)
    said = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError, ssl.SSLError):
        try:
            said = connection.recv(1)
        except TimeoutError:
            return Attempt(where, Reception.TAKEN, f"not closed within {CLOSED_S:g} s")
    if said:
        return Attempt(where, Reception.TAKEN, "answered")
    return Attempt(where, Reception.REFUSED, "closed")
