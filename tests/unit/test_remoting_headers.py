"""Typed headers: every class there and back, and what each kind of field makes of a text."""

from typing import Any

import msgspec
import pytest

from remoting.codes import RequestCode
from remoting.errors import HeaderError
from remoting.headers import registry as headers
from remoting.headers.registry import (
    REQUEST_HEADERS,
    ConsumerSendMsgBackRequestHeader,
    GetMaxOffsetRequestHeader,
    Header,
    PullMessageRequestHeader,
    QueryMessageRequestHeader,
    RegisterBrokerRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
    decode_header,
    encode_header,
)

ALL = [
    kind
    for name in headers.__all__
    if isinstance(kind := getattr(headers, name), type) and issubclass(kind, Header) and kind is not Header
]


def filled(cls: type[Header]) -> Header:
    """A header whose every field has a value that is no default."""
    values: dict[str, Any] = {}
    for number, field in enumerate(msgspec.structs.fields(cls), start=1):
        kinds = str(field.type)
        if "bool" in kinds:
            values[field.name] = field.default is not True
        elif "int" in kinds:
            values[field.name] = number
        else:
            values[field.name] = f"text {number}"
    return cls(**values)


@pytest.mark.parametrize("cls", ALL)
def test_every_header_survives_as_text(cls: type[Header]) -> None:
    header = filled(cls)
    ext = encode_header(header)
    assert all(type(value) is str for value in ext.values())
    assert set(ext) == set(cls.__struct_encode_fields__)
    assert decode_header(cls, ext) == header


@pytest.mark.parametrize("cls", ALL)
def test_every_required_field_is_named_when_it_is_missing(cls: type[Header]) -> None:
    complete = encode_header(filled(cls))
    for field in msgspec.structs.fields(cls):
        ext = {name: value for name, value in complete.items() if name != field.encode_name}
        if field.required:
            with pytest.raises(HeaderError, match=f"^the custom field <{field.encode_name}> is null$"):
                decode_header(cls, ext)
        else:
            assert getattr(decode_header(cls, ext), field.name) == field.default


def test_every_request_code_with_fields_has_its_header() -> None:
    bodies_only = {
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_TIMER_METRICS,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
    }
    assert set(RequestCode) - bodies_only == set(REQUEST_HEADERS)


def test_the_two_forms_of_a_send_say_the_same_under_other_names() -> None:
    v1, v2 = SendMessageRequestHeader, SendMessageRequestHeaderV2
    assert v1.__struct_fields__ == v2.__struct_fields__
    assert "".join(v2.__struct_encode_fields__) == "abcdefghijklmn"[:11] + "lmn"
    assert encode_header(filled(v2))["b"] == encode_header(filled(v1))["topic"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("True", True), ("1", True), ("0", False), ("false", False), ("", False),
     ("yes", False)],
)  # fmt: skip
def test_booleans_are_true_only_when_they_say_so(text: str, value: bool) -> None:
    header = decode_header(GetMaxOffsetRequestHeader, {"topic": "t", "queueId": "0", "committed": text})
    assert header.committed is value


@pytest.mark.parametrize(("text", "value"), [("7", 7), ("-7", -7), ("+7", 7), (" 7 ", 7), ("007", 7)])
def test_integers_are_decimal_text(text: str, value: int) -> None:
    assert decode_header(GetMaxOffsetRequestHeader, {"topic": "t", "queueId": text}).queueId == value


@pytest.mark.parametrize(
    "text", ["", "x", "1.5", "1_000", "0x10", "٣", "2147483648", "-2147483649", "9" * 5000, "null"]
)
def test_integers_that_are_none_are_refused_by_name(text: str) -> None:
    with pytest.raises(
        HeaderError, match=r"^the custom field <queueId> is not an integer from -2147483648 to 2147483647: "
    ) as caught:
        decode_header(GetMaxOffsetRequestHeader, {"topic": "t", "queueId": text})
    assert len(str(caught.value)) < 200


def test_longs_have_64_bits() -> None:
    ext = {"consumerGroup": "g", "topic": "t", "queueId": "0"}
    for value in (2**63 - 1, -(2**63)):
        header = decode_header(UpdateConsumerOffsetRequestHeader, {**ext, "commitOffset": str(value)})
        assert header.commitOffset == value
    with pytest.raises(HeaderError, match="commitOffset"):
        decode_header(UpdateConsumerOffsetRequestHeader, {**ext, "commitOffset": str(2**63)})


def test_an_empty_optional_number_counts_as_absent() -> None:
    ext = {"offset": "1", "group": "g", "delayLevel": "0", "maxReconsumeTimes": "", "unitMode": "0"}
    header = decode_header(ConsumerSendMsgBackRequestHeader, ext)
    assert (header.maxReconsumeTimes, header.unitMode) == (None, False)


def test_unknown_fields_are_ignored_and_none_is_not_written() -> None:
    header = decode_header(
        PullMessageRequestHeader,
        {"consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "2",
         "commitOffset": "0", "suspendTimeoutMillis": "15000", "subVersion": "1", "bname": "b", "ns": "n"},
    )  # fmt: skip
    assert header.subscription is None
    assert "subscription" not in encode_header(header)
    assert "bname" not in encode_header(header)


def test_names_that_are_no_identifiers_are_kept() -> None:
    ext = {"topic": "t", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
    assert not decode_header(QueryMessageRequestHeader, ext).uniqueKeyQuery
    assert decode_header(QueryMessageRequestHeader, {**ext, "_UNIQUE_KEY_QUERY": "true"}).uniqueKeyQuery


def test_the_crc_of_a_registration_is_zero_when_absent() -> None:
    ext = {"brokerName": "b", "brokerAddr": "a", "clusterName": "c", "haServerAddr": "h", "brokerId": "0"}
    assert decode_header(RegisterBrokerRequestHeader, ext).bodyCrc32 == 0
