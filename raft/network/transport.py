"""Links to all other members of the group: dialled, accepted, kept alive, given up.

Each member dials every other one, and what A has to say to B goes over the link that A dialled; so a link that ends
takes nothing of the other direction with it. A link for a copy (raft.snapshot.protocol) is dialled by the member that
wants one and is used both ways. Must be used inside one running loop.
"""

import asyncio
import contextlib
import logging
import random
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping
from secrets import token_bytes
from typing import NamedTuple, Protocol

from raft.network.handshake import NONCE_BYTES, REFUSALS, Acceptor, Dialler, Identity, Purpose, refusal_kind
from raft.network.link import Link, LinkLimits, LinkOwner
from raft.protocol.fixed_heads import FIXED_HEADS
from raft.protocol.hello import Hello, HelloError
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.wire import Piece, frame_message
from runtime.listening import is_loopback, stop_accepting
from runtime.quiet import FewLines
from runtime.refusals import DoorRefusals
from runtime.tasks import Tasks
from runtime.tls import Contexts, ServerTls, names_host
from runtime.tls_door import TlsDoor, listen, refused_at

_log = logging.getLogger(__name__)

_BACKLOG = 64
# Reasons remembered so that the same one is not logged at every attempt; the oldest is forgotten beyond it.
_COMPLAINTS_MAX = 256
# Lines in ten seconds about links that never got through the handshake.
_STRANGER_LINES = 32
# A link must have lived this long before the next dialling starts with the shortest wait again.
_STEADY_SECONDS = 1.0
# How long close() waits for what is still to be sent.
_CLOSE_SECONDS = 0.5
# A message that goes to several members is kept framed up to this size.
FRAMED_BYTES_MAX = 256 * 1024
_LIMITS = LinkLimits()

Address = tuple[str, int]


class SecretRequired(ValueError):
    """A member is not on loopback and there is no secret; the text says what to do."""


class Tls(NamedTuple):
    """How links are encrypted; both sides should ask for the other's certificate."""

    server: ServerTls
    client: Contexts


class CopyDesk(Protocol):
    """Who serves links for copies (raft.snapshot.server.ResetServer)."""

    def admit(self, link: Link) -> None:
        """Take over a link that was just opened for a copy, or close it with the reason."""
        ...

    def receive(self, link: Link, message: RaftMessage) -> None:
        """Take a message that came on such a link."""
        ...

    def gone(self, link: Link) -> None:
        """Such a link has ended."""
        ...


class PeerEvents(NamedTuple):
    """What the transport tells, in the loop."""

    on_message: Callable[[str, RaftMessage], None]
    on_connected: Callable[[str, Hello], None]
    """The link on which this member sends is open; the hello is the other side's."""
    on_disconnected: Callable[[str], None]
    judge: Callable[[Hello], str | None]
    """Say why a member with this hello is refused, or None."""


class PeerTransport:
    """Sends messages to members by id. `port` is the one bound once started."""

    def __init__(
        self,
        self_id: str,
        group: str,
        *,
        hello: Callable[[], Hello],
        events: PeerEvents,
        secrets: tuple[bytes, ...],
        limits: LinkLimits = _LIMITS,
        tls: Tls | None = None,
        copies: CopyDesk | None = None,
        rng: random.Random | None = None,
        dial_from: str = "",
    ) -> None:
        self._identity = Identity(group, self_id, secrets, lambda: hello().encode(), dial_from)
        self._events = events
        self._limits = limits
        self._tls = tls
        self._copies = copies
        self._rng = rng or random.Random()
        self._peers: dict[str, Address] = {}
        self._dials: dict[str, _Dial] = {}
        self._out: dict[str, Link] = {}
        self._in: dict[str, Link] = {}
        # In the order in which they were made.
        self._links: dict[Link, None] = {}
        self._tasks = Tasks(f"raft-{self_id}")
        self._server: asyncio.Server | TlsDoor | None = None
        self._complaints: OrderedDict[str, str] = OrderedDict()
        self._strangers = FewLines(_STRANGER_LINES)
        self._refusals = DoorRefusals("Raft")
        self._closing = False
        # The last message, with which kind of heads it was framed, and its frame.
        self._framed, self._framed_fixed = RaftMessage(MessageKind.CLOCK, {}), False
        self._frame: tuple[list[Piece], int] = ([], 0)
        # Links of others that ended before they had proved whose they are.
        self._refused = dict.fromkeys(REFUSALS, 0)
        self.port = 0

    @property
    def connected(self) -> set[str]:
        """The members that messages can be sent to."""
        return set(self._out)

    @property
    def hosts(self) -> set[str]:
        """The addresses of those members that have proved that they are some, by a link that is open."""
        return {link.address[0] for link in (*self._out.values(), *self._in.values())}

    async def start(self, host: str, port: int) -> None:
        """Listen and begin to dial. OSError when the address cannot be had; SecretRequired."""
        if not self._identity.secrets and (far := sorted(p for p, (h, _) in self._peers.items() if not is_loopback(h))):
            raise SecretRequired(f"members {', '.join(far)} are not on loopback: give all of them one raftSecretFile")
        server_tls = self._tls.server if self._tls else None
        self._server = await listen("Raft", self._accept, host, port, backlog=_BACKLOG, tls=server_tls)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._tasks.every(self._limits.beat_seconds, self._beat, "beat")
        peers, self._peers = self._peers, {}
        self.set_peers(peers)

    def set_peers(self, peers: Mapping[str, Address]) -> None:
        """Say who the other members are and where; links to others are closed. Before start() it is only noted."""
        wanted = {peer: address for peer, address in peers.items() if peer != self._identity.self_id}
        if self._server is None:
            self._peers = wanted
            return
        for peer, address in self._peers.items():
            if wanted.get(peer) != address:
                self._forget(peer)
        before, self._peers = self._peers, wanted
        for peer, address in wanted.items():
            if before.get(peer) != address:
                self._begin(peer, address)

    def send(self, peer: str, message: RaftMessage) -> bool:
        """Send a message after those before it; False when there is no link or too much waits for it already."""
        link = self._out.get(peer)
        if link is None:
            return False
        if message is self._framed and link.fixed_heads is self._framed_fixed:
            return link.send_frame(*self._frame)
        frame = frame_message(message, fixed=link.fixed_heads)
        # What goes to several members is framed once; a long one is little work, and much to keep.
        if frame[1] <= FRAMED_BYTES_MAX:
            self._framed, self._framed_fixed, self._frame = message, link.fixed_heads, frame
        return link.send_frame(*frame)

    @property
    def refused(self) -> Mapping[str, int]:
        """How many connections ended before they had proved whose they are, by reason; see REFUSALS."""
        return {**self._refused, **refused_at(self._server)}

    async def close(self) -> None:
        """Dial and accept no more, send what waits for at most half a second, end all links."""
        server = self._server
        if server is None:
            return
        self._closing = True
        await stop_accepting(server)
        await self._tasks.close()
        for link in list(self._links):
            link.close("this member stops")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.gather(*(link.ended.wait() for link in self._links))
        for link in list(self._links):
            link.abort("this member stops")
        await server.wait_closed()
        self._server = None

    # ---- dialling

    def _begin(self, peer: str, address: Address) -> None:
        if not self._identity.secrets and not is_loopback(address[0]):
            _log.error("raft: %s at %s:%d is not on loopback and raftSecretFile is not set: no link", peer, *address)
            return
        dial = self._dials[peer] = _Dial(peer, address)
        dial.task = self._tasks.spawn(self._keep_dialling(dial), f"dial {peer}")

    def _forget(self, peer: str) -> None:
        dial = self._dials.pop(peer, None)
        if dial is not None and dial.task is not None:
            dial.task.cancel()
        for link in [link for link in self._links if link.peer == peer]:
            link.close("it is no longer a member at this address")

    async def _keep_dialling(self, dial: "_Dial") -> None:
        first = wait = self._limits.backoff_first_seconds
        while True:
            if await self._dial_once(dial):
                wait = first
            dial.hurry.clear()
            try:
                async with asyncio.timeout(wait * (1 + self._rng.random() / 4)):
                    await dial.hurry.wait()
                wait = first
            except TimeoutError:
                wait = min(wait * 2, self._limits.backoff_max_seconds)

    async def _dial_once(self, dial: "_Dial") -> bool:
        """Connect and stay until the link has ended; return whether it was a good one."""
        host, port = dial.address
        try:
            link = await open_link(self._identity, dial.peer, "messages", dial.address, self._limits, self._tls, self)
        except (OSError, ssl.SSLError) as error:
            self._complain(f"to {dial.peer}", f"no connection to {dial.peer} at {host}:{port}: {error}")
            return False
        began = self._loop_time()
        await link.ended.wait()
        return link.opened and self._loop_time() - began >= _STEADY_SECONDS

    # ---- accepting

    def _accept(self) -> Link:
        link: Link

        def judge(peer: str, hello: bytes) -> str | None:
            return self._judge_incoming(link, peer, hello)

        link = Link(Acceptor(self._identity, token_bytes(NONCE_BYTES), judge), self._limits, self)
        return link

    def _judge_incoming(self, link: Link, peer: str, hello: bytes) -> str | None:
        if not self._identity.secrets and not is_loopback(link.address[0]):
            return "without raftSecretFile only members on loopback are let in"
        if peer not in self._peers:
            return f"{peer} is no member of the group {self._identity.group} that {self._identity.self_id} knows of"
        host = self._peers[peer][0]
        if self._tls is not None and not names_host(link.certificate, host):
            return f"its certificate does not name {host}, where {peer} is in the group"
        if link.shake.purpose == "copy":
            return None if self._copies is not None else "no copies are served here"
        return self._judge(peer, hello)

    def _judge(self, peer: str, data: bytes) -> str | None:
        try:
            hello = Hello.decode(data)
        except HelloError as error:
            return f"a hello that cannot be read: {error}"
        if hello.self_id != peer:
            return f"{peer} calls itself {hello.self_id}"
        return self._events.judge(hello)

    # ---- what links tell (raft.network.link.LinkOwner)

    def link_made(self, link: Link) -> None:
        """Take note of it; when too many were accepted, one of them must go."""
        self._links[link] = None
        if self._closing and isinstance(link.shake, Acceptor):
            # Its TLS handshake was under way.
            link.abort("this member stops")
        elif isinstance(link.shake, Acceptor):
            accepted = [one for one in self._links if isinstance(one.shake, Acceptor)]
            if len(accepted) > self._limits.incoming_max:
                # A stranger who opens one after the other must not keep members out, who prove themselves at once.
                victim = next(one for one in accepted if not one.opened)
                victim.abort(f"{self._limits.incoming_max} connections are accepted at once")

    def link_opened(self, link: Link) -> None:
        """Take it into use."""
        peer = link.peer
        if isinstance(link.shake, Dialler):
            why = self._judge(peer, link.shake.hello)
            if why is not None:
                link.close(f"this member refuses: {why}")
                return
            self._out[peer] = link
            self._complaints.pop(f"to {peer}", None)
            _log.info("raft: linked to %s at %s:%d", peer, *link.address)
            hello = Hello.decode(link.shake.hello)
            link.fixed_heads = FIXED_HEADS in hello.features
            self._events.on_connected(peer, hello)
        elif link.shake.purpose == "copy":
            assert self._copies is not None, "judged"
            self._copies.admit(link)
        else:
            before = self._in.get(peer)
            self._in[peer] = link
            self._complaints.pop(f"from {peer}", None)
            if before is not None:
                before.close("a newer link takes its place")
            # It is alive, so the way back is worth an attempt at once.
            if peer in self._dials:
                self._dials[peer].hurry.set()

    def link_received(self, link: Link, message: RaftMessage) -> None:
        """Hand a message on."""
        if link.shake.purpose == "copy":
            assert self._copies is not None, "judged"
            self._copies.receive(link, message)
        elif link is self._in.get(peer := link.peer):
            self._events.on_message(peer, message)
        else:
            link.abort("messages come over the link that the sender dialled")

    def link_closed(self, link: Link, reason: str) -> None:
        """Give it up."""
        self._links.pop(link, None)
        peer = link.peer
        host, port = link.address
        if isinstance(link.shake, Dialler):
            self._complain(f"to {peer}", f"the link to {peer} at {host}:{port} is closed: {reason}")
            if self._out.get(peer) is link:
                del self._out[peer]
                self._events.on_disconnected(peer)
            return
        if link.opened and link.shake.purpose == "copy":
            assert self._copies is not None, "judged"
            self._copies.gone(link)
            return
        if not link.opened:
            self._refused[refusal_kind(reason, given_up=link.given_up)] += 1
        if link.given_up and not link.opened and not self._closing:
            self._refusals.tell(host, "handshake", reason)
        key, text = f"from {peer or host}", f"the link from {peer or 'somebody'} at {host} is closed: {reason}"
        self._complain(key, text, proved=link.opened)
        if self._in.get(peer) is link:
            del self._in[peer]

    def _beat(self) -> None:
        for link in list(self._links):
            link.beat()

    def _complain(self, key: str, text: str, *, proved: bool = True) -> None:
        """Log a reason once, not at each attempt that fails for it.

        Who has not `proved` to be somebody may give a new name and a new reason each time, and gets few lines.
        """
        known = self._closing or self._complaints.get(key) == text
        known = known or not (proved or self._strangers.let())
        self._complaints[key] = text
        self._complaints.move_to_end(key)
        if len(self._complaints) > _COMPLAINTS_MAX:
            self._complaints.popitem(last=False)
        _log.log(logging.DEBUG if known else logging.WARNING, "raft: %s", text)

    @staticmethod
    def _loop_time() -> float:
        return asyncio.get_running_loop().time()


class _Dial:
    """The standing wish for a link to a member."""

    def __init__(self, peer: str, address: Address) -> None:
        self.peer = peer
        self.address = address
        self.hurry = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


async def open_link(
    identity: Identity,
    peer: str,
    purpose: Purpose,
    address: Address,
    limits: LinkLimits,
    tls: Tls | None,
    owner: LinkOwner,
) -> Link:
    """Connect to a member and begin the handshake, of which `owner` is told; OSError when there is no connection."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(limits.connect_seconds):
        _, link = await loop.create_connection(
            lambda: Link(Dialler(identity, peer, purpose, token_bytes(NONCE_BYTES)), limits, owner),
            *address,
            local_addr=(identity.dial_from, 0) if identity.dial_from else None,
            ssl=tls.client.current() if tls else None,
            ssl_handshake_timeout=limits.handshake_seconds if tls else None,
        )
    return link
