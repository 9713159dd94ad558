"""Decoders of a port that asks for signatures: signed sends and their proof, users, policies, what requests touch."""

import base64
from collections.abc import Callable
from functools import partial

import orjson

from auth.model import resource_of
from auth.needs import BROKER
from auth.wire import changed_user, made_user, user_name, with_policies
from broker.messages.timed_record import read_handle
from broker.settings.pair_proof import PairProof, read_question
from remoting.bodies.registry import AclInfo, UserInfo
from remoting.codec import HEADER_BYTES_MAX, decode_signed_parts
from remoting.codes import RequestCode
from remoting.command import JSON, Command
from remoting.errors import CommandError, FrameError, HeaderError
from remoting.framing import FrameReader
from remoting.headers.signed import SignedSend
from remoting.repeated import RepeatedSend, reader_of_likes
from remoting.signing import Credentials, is_signed_by, sign
from tests.fuzz.bounds import KIB, MIB, Target
from tests.fuzz.samples import filled
from tests.fuzz.targets_remoting import frame_of, read_stream, with_lengths

_WHO = Credentials("alice", "a-secret-of-alice")
_SEND = {
    "a": "producer", "b": "orders", "c": "TBW102", "d": "8", "e": "3", "f": "0", "g": "1795379984248", "h": "0",
    "i": "KEYS\x01k\x02WAIT\x01true\x02", "j": "0", "k": "false", "l": "16", "m": "false",
}  # fmt: skip
_WRONG = (FrameError, HeaderError)


def _signed(**changed: str) -> bytes:
    """Return the header of a signed send."""
    command = Command.request(RequestCode.SEND_MESSAGE_V2, ext={**_SEND, **changed}, body=b"a body")
    sign(command, _WHO)
    fixed = {"code": 310, "flag": 0, "language": "JAVA", "opaque": 7, "serializeTypeCurrentRPC": "JSON", "version": 450}
    return orjson.dumps({**fixed, "extFields": command.ext})


def _framed(make: Callable[[], bytes]) -> bytes:
    return frame_of(make())


def _verified(header: bytes) -> bool:
    """Read a header as a guard does, and look at its signature."""
    return is_signed_by(decode_signed_parts(JSON, header, b"a body"), _WHO.secret_key)


def _like() -> Callable[[bytes], None]:
    """Return what reads headers by one that came before, and holds what it says against reading them whole."""
    first = decode_signed_parts(JSON, _signed(), b"")
    assert isinstance(first.typed_header, SignedSend), "the usual send says nothing unusual"
    known = first.typed_header
    decode = reader_of_likes(first, known, "known")
    assert decode is not None, "the usual send is one that others can be like"

    def read(header: bytes) -> None:
        taken = decode(JSON, header, b"")
        said = taken.typed_header
        if not isinstance(said, RepeatedSend):
            return
        whole = decode_signed_parts(JSON, header, b"")
        assert isinstance(whole.typed_header, SignedSend), "what is alike is a send"
        its = {name: getattr(whole.typed_header, name) for name in SignedSend.__struct_fields__}
        alike = {name: getattr(known, name) for name in SignedSend.__struct_fields__}
        alike |= {"e": said.queue.decode(), "g": said.time.decode(), "i": said.properties}
        alike["Signature"] = said.signature.decode()
        assert its == alike, "it says what reading it whole says"
        assert (taken.opaque, taken.flag, taken.code) == (whole.opaque, whole.flag, whole.code), "and so does the rest"

    return read


def _policies(data: bytes) -> None:
    user_name(AclInfo.decode(data).subject or "")
    with_policies({}, AclInfo.decode(data).policies)


def _user(data: bytes) -> None:
    info = UserInfo.decode(data)
    changed_user(made_user("alice", info), info)


def _touched(code: int, data: bytes) -> None:
    """Ask what a request with this body touches, as whoever decides about it does."""
    rule = BROKER[code]
    assert callable(rule), "its body says what it touches"
    rule(Command.request(code, body=data), "DefaultCluster")


def _bodies() -> list[Target]:
    entry = b'{"resource":"Topic:a*","actions":["Pub","Sub"],"sourceIps":["10.0.0.0/8"],"decision":"Allow"}'
    acl = b'{"subject":"User:alice","policies":[{"policyType":"Custom","entries":[' + entry + b"]}]}"
    acked = b'{"b":"Bg==","c":"G","it":6000,"pt":1795380096990,"q":0,"r":"0","rq":5,"so":0,"t":"T"}'
    subscribed = b'{"groupName":"g","subscriptionDataSet":[{"topic":"T","subString":"*"}]}'
    queue = b'{"topic":"T","brokerName":"b","queueId":0}'
    rules: dict[RequestCode, tuple[bytes, bytes, bytes]] = {
        RequestCode.BATCH_ACK_MESSAGE: (b'{"acks":[', acked, b"]}"),
        RequestCode.HEART_BEAT: (b'{"clientID":"c","consumerDataSet":[', subscribed, b"]}"),
        RequestCode.LOCK_BATCH_MQ: (b'{"consumerGroup":"g","mqSet":[', queue, b"]}"),
        RequestCode.QUERY_ASSIGNMENT: (b'{"topic":"T","consumerGroup":"g","x":[', b"0", b"]}"),
        RequestCode.SET_MESSAGE_REQUEST_MODE: (b'{"topic":"T","consumerGroup":"g","x":[', b"0", b"]}"),
    }
    found = [
        Target(f"auth.touched.{code.name.lower()}", partial(_touched, code), (*_WRONG, CommandError),
               (b"".join(parts),), (filled(*parts, MIB), filled(parts[0], b"{}", parts[2], 64 * KIB)), weight=2)
        for code, parts in rules.items()
    ]  # fmt: skip
    many = b'{"subject":"User:a","policies":[{"entries":['
    return [
        *found,
        Target("auth.policies", _policies, (*_WRONG, CommandError), (acl, acl.replace(b"Custom", b"Default")),
               (filled(many, entry, b"]}]}", 60 * KIB), filled(many, b"{}", b"]}]}", 60 * KIB),
                filled(many[:-1] + b'[{"sourceIps":[', b'"10.0.0.0/8"', b"]}]}]}", 60 * KIB)),
               weight=3, tokens=(b"Topic:", b"*", b"Any", b"/", b"::", b'"Deny"', b"%RETRY%")),
        Target("auth.user", _user, (*_WRONG, CommandError),
               (b'{"username":"a","password":"b","userType":"Super","userStatus":"disable"}',), weight=1),
        Target("auth.resource", lambda data: resource_of(data.decode("utf-8", "replace")), (),
               (b"Topic:a*", b"Group:*", b"*", b"Cluster:c"), (lambda: b"Topic:" + b"*" * MIB, lambda: b":" * MIB),
               weight=1, tokens=(b"*", b":", b"Topic", b"Any")),
    ]  # fmt: skip


def _headers() -> list[Target]:
    usual = (_signed(), _signed(e="9", i="KEYS\x01l\x02WAIT\x01true\x02"), _signed(n="b"), _signed(x="1"))
    size = HEADER_BYTES_MAX - 1000
    long = (
        lambda: _signed(i="\x01" * (size // 6)),
        lambda: _signed(i="A" * size),
        lambda: _signed().replace(b'"j"', b'"' + b"e" * size + b'"'),
        lambda: _signed().replace(b'"7"', b"[" * 300),
    )
    fields = tuple(b'"%b":"' % name for name in (b"e", b"g", b"i", b"Signature", b"AccessKey"))
    tokens = (*fields, b'"opaque":', b'\\"', b"\\u0065", b"=", b"null", b'"SecurityToken":"s",', b"_UNIQUE_KEY_QUERY")
    read = partial(read_stream, made=partial(FrameReader, decode=decode_signed_parts))
    return [
        Target("signed.stream", read, _WRONG, tuple(map(frame_of, usual)),
               tuple(partial(_framed, make) for make in long), with_lengths, bytes_max=512 * KIB, weight=4),
        Target("signed.repeated", _like(), _WRONG, usual, long, weight=6, bytes_max=HEADER_BYTES_MAX, tokens=tokens),
        Target("signed.proof", _verified, _WRONG, usual,
               (*long, lambda: _signed(**{f"{number:x}": "" for number in range(100)})), weight=4,
               bytes_max=HEADER_BYTES_MAX, tokens=tokens),
    ]  # fmt: skip


def _proofs() -> list[Target]:
    """Make the targets of what brokers of one name ask one another, and of what recalls a timer message."""
    pair = PairProof((b"a secret of a pair", b"another one"))
    state = {"broker": "b", "role": "ASYNC_MASTER", "epoch": 3, "promoting": None, "fenced": None}
    asked = b'{"brokerId":1,"address":"h:1","proof":"","nonce":"0123456789abcdef"}'

    def question(data: bytes) -> None:
        told = read_question(data)
        if told is not None:
            pair.introduces("cafe", told)
        pair.answer(state, data)

    def proved(data: bytes) -> None:
        answer = orjson.loads(data)
        if isinstance(answer, dict):
            pair.proves("n", answer)

    answer = orjson.dumps(pair.answer(state, asked))
    handle = base64.urlsafe_b64encode(b"v1 orders broker-a 1795380096990 0A0B0C")
    return [
        Target("pair.question", question, (), (asked, b"{}"), weight=2),
        Target("pair.answer", proved, (orjson.JSONDecodeError,), (answer,),
               (filled(b'{"epoch":[', b"{}", b"]}", 16 * KIB), lambda: b'{"epoch":' + b"9" * 300 + b"}"), weight=2),
        Target("recall.handle", lambda data: read_handle(data.decode("utf-8", "replace")), (CommandError,),
               (handle, base64.urlsafe_b64encode(b"v1 t b 9 \xff k"), b"===="), (lambda: b"A" * MIB,), weight=2,
               tokens=(b"=", b"_", b"-", b"djEg", b"IA")),
    ]  # fmt: skip


def targets() -> list[Target]:
    """Return them all."""
    return [*_headers(), *_bodies(), *_proofs()]
