"""auth/send_age.py: signed sends that were made too long ago, or are not made yet, are refused in words."""

from typing import Any, cast

import pytest

from auth.send_age import DATED, SEND_SECONDS
from auth.settings import AuthKeys, check_auth
from broker.settings.config import BrokerConfig
from namesrv.config import NamesrvConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection, Handler
from remoting.signing import sign
from runtime.config import ConfigError
from tests.parts.guarded_sends import ALICE, BODY, USUAL, GuardSite, signed, written

BORN = int(USUAL["g"]) / 1000
WHY = "the send was made 61 s ago by this broker's clock, authenticationSendLifetimeSeconds=60: it may be a replay"


def site(now: float, seconds: int = 60, **keys: Any) -> GuardSite:
    return GuardSite(lambda: now, authenticationSendLifetimeSeconds=seconds, **keys)


@pytest.mark.parametrize("strategy", ["", "StatefulAuthenticationStrategy"])
@pytest.mark.parametrize(("later", "let_in"), [(0, True), (60, True), (60.1, False), (-60, True), (-60.1, False)])
def test_a_send_is_let_in_around_the_time_when_it_was_made(later: float, let_in: bool, strategy: str) -> None:
    guarded = site(BORN + later, authenticationStrategy=strategy)
    # As often as it takes until it is known at sight.
    for _ in range(8):
        assert (guarded.asked(written(signed(USUAL))) is not None) == let_in
        assert guarded.asked(written(signed({**USUAL, "g": "1"}))) is None


def test_without_the_key_a_signature_never_ends() -> None:
    assert site(BORN + 1e9, seconds=0).asked(written(signed(USUAL))) is not None


@pytest.mark.parametrize("code", sorted(DATED))
def test_every_code_that_sends_is_looked_at(code: int) -> None:
    assert {RequestCode(each).name for each in DATED} == {
        each.name for each in RequestCode if each.name.startswith("SEND_") and "BACK" not in each.name
    }
    fields = {"producerGroup": "p", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4}
    said: Any = {**fields, "queueId": 0, "sysFlag": 0, "bornTimestamp": round(BORN * 1000), "flag": 0, "properties": ""}
    request = Command.request(code, DATED[code](**said), BODY)
    sign(request, ALICE)
    served: list[Command] = []
    for now, count in ((BORN + 1, 1), (BORN + 61, 0)):
        taken: Handler = lambda _connection, asked: served.append(asked)  # noqa: E731 # one line of a table
        handler = site(now).guard.guarded({code: taken})[code]
        served.clear()
        answer = handler(cast(Connection, GuardSite().link), request)
        assert len(served) == count
        if not count:
            assert isinstance(answer, Command)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert answer.remark == WHY
        sign(request, ALICE)


@pytest.mark.parametrize("seconds", [-1, 1, SEND_SECONDS[0] - 1, SEND_SECONDS[-1] + 1])
def test_a_time_that_is_of_no_use_is_refused(seconds: int) -> None:
    with pytest.raises(ConfigError, match=f"authenticationSendLifetimeSeconds={seconds}: it takes seconds, 10 to"):
        check_auth(AuthKeys(authenticationEnabled=True, authenticationSendLifetimeSeconds=seconds))
    for fine in (0, SEND_SECONDS[0], SEND_SECONDS[-1]):
        check_auth(AuthKeys(authenticationEnabled=True, authenticationSendLifetimeSeconds=fine))


def test_where_nobody_signs_or_sends_a_lifetime_is_refused() -> None:
    with pytest.raises(ConfigError, match="authenticationSendLifetimeSeconds=60 takes authenticationEnabled=true"):
        check_auth(AuthKeys(authenticationSendLifetimeSeconds=60))
    user = '{"username":"admin","password":"a-long-secret"}'
    signed_keys: Any = {"authenticationEnabled": True, "initAuthenticationUser": user}
    NamesrvConfig(**signed_keys).validate()
    with pytest.raises(ConfigError, match="authenticationSendLifetimeSeconds is a broker's"):
        NamesrvConfig(**signed_keys, authenticationSendLifetimeSeconds=60).validate()


def test_a_lifetime_is_no_longer_than_sends_are_remembered() -> None:
    keys: Any = {"authenticationEnabled": True, "authenticationSendLifetimeSeconds": 61}
    # Without a window it bounds how long a recorded send is of use, and that may be long.
    BrokerConfig(**keys).validate()
    BrokerConfig(**keys, idempotentForAllProducers=True, idempotentWindowSeconds=61).validate()
    with pytest.raises(ConfigError, match=r"Seconds=61: it takes at most idempotentWindowSeconds \(60\)"):
        BrokerConfig(**keys, idempotentForAllProducers=True).validate()
