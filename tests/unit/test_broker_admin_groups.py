"""Codes 200, 201, 207, 225, 343, 345, 352, 353."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.admin.groups import AdminGroups
from remoting.bodies.registry import (
    GroupForbidden,
    QuerySubscriptionBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupTable,
    TopicList,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.registry import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from tests.parts.broker_parts import ADDRESS, Parts, Peer, broker_parts


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with broker_parts(tmp_path) as made:
        made.handlers = AdminGroups(made.groups, made.offsets, made.clients, made.stats, ADDRESS, made.persist).table()
        yield made


def groups_on_disk(tmp_path: Path) -> dict[str, object]:
    content = json.loads((tmp_path / "store" / "config" / "subscriptionGroup.json").read_bytes())
    table = content["subscriptionGroupTable"]
    assert isinstance(table, dict)
    return table


async def test_an_updated_group_is_durable_before_the_answer(parts: Parts, tmp_path: Path) -> None:
    wanted = SubscriptionGroupConfig("g", consumeEnable=False, retryMaxTimes=3)
    answer = await parts.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=wanted.encode())
    assert answer.code == ResponseCode.SUCCESS
    assert parts.groups.get("g") == wanted
    assert "g" in groups_on_disk(tmp_path)


async def test_a_list_of_groups(parts: Parts) -> None:
    body = SubscriptionGroupList([SubscriptionGroupConfig("a"), SubscriptionGroupConfig("b")]).encode()
    assert (await parts.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)).code == 0
    assert parts.groups.get("b") is not None
    body = SubscriptionGroupList([SubscriptionGroupConfig("c"), SubscriptionGroupConfig("not allowed")]).encode()
    answer = await parts.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert parts.groups.get("c") is None


@pytest.mark.parametrize("body", [b"", b"{", b'{"groupName":""}', b'{"groupName":"a b"}', b'{"groupName":{}}'])
async def test_what_is_no_group(parts: Parts, body: bytes) -> None:
    count = len(parts.groups.tables)
    answer = await parts.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert answer.code in {ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER}
    assert len(parts.groups.tables) == count


@pytest.mark.parametrize("clean", [True, False])
async def test_a_deleted_group_keeps_its_offsets_unless_asked(parts: Parts, tmp_path: Path, clean: bool) -> None:
    parts.groups.update(SubscriptionGroupConfig("g"))
    parts.offsets.assign("g", "T", 0, 5)
    header = DeleteSubscriptionGroupRequestHeader(groupName="g", cleanOffset=clean)
    assert (await parts.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)).code == ResponseCode.SUCCESS
    assert parts.groups.get("g") is None
    assert "g" not in groups_on_disk(tmp_path)
    assert parts.offsets.query("g", "T", 0) == (-1 if clean else 5)
    assert parts.persisted == int(clean)


async def test_the_whole_table_and_pages(parts: Parts) -> None:
    parts.groups.set_readable("TOOLS_CONSUMER", "T", readable=False)
    answer = await parts.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    whole = SubscriptionGroupTable.decode(answer.body)
    assert whole.subscriptionGroupTable == parts.groups.tables
    assert whole.forbiddenTable == {"TOOLS_CONSUMER": {"T": 4}}
    found: dict[str, SubscriptionGroupConfig] = {}
    while len(found) < len(parts.groups.tables):
        ext = {"groupSeq": str(len(found)), "maxGroupNum": "3"}
        answer = await parts.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ext=ext)
        page = SubscriptionGroupTable.decode(answer.body)
        assert 0 < len(page.subscriptionGroupTable) <= 3
        found.update(page.subscriptionGroupTable)
        assert answer.ext["totalGroupNum"] == str(len(parts.groups.tables))
    assert found == parts.groups.tables


async def test_one_group(parts: Parts) -> None:
    header = GetSubscriptionGroupConfigRequestHeader(group="TOOLS_CONSUMER")
    answer = await parts.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
    assert SubscriptionGroupConfig.decode(answer.body) == parts.groups.get("TOOLS_CONSUMER")


async def test_a_group_that_is_asked_for_is_made_as_for_a_consumer(parts: Parts, tmp_path: Path) -> None:
    header = GetSubscriptionGroupConfigRequestHeader(group="none")
    answer = await parts.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
    assert answer.code == ResponseCode.SUCCESS
    assert SubscriptionGroupConfig.decode(answer.body) == SubscriptionGroupConfig("none") == parts.groups.get("none")
    assert "none" in groups_on_disk(tmp_path)
    header = GetSubscriptionGroupConfigRequestHeader(group="no name")
    answer = await parts.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    parts.config.update({"autoCreateSubscriptionGroup": "false"})
    header = GetSubscriptionGroupConfigRequestHeader(group="other")
    answer = await parts.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_reading_is_forbidden_asked_and_allowed(parts: Parts) -> None:
    code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN

    async def ask(readable: bool | None) -> bool | None:
        header = UpdateGroupForbiddenRequestHeader(group="TOOLS_CONSUMER", topic="T", readable=readable)
        answer = await parts.ask(code, header)
        body = GroupForbidden.decode(answer.body)
        assert (body.group, body.topic) == ("TOOLS_CONSUMER", "T")
        return body.readable

    assert await ask(None) is True
    assert await ask(False) is False
    assert await ask(None) is False
    assert await ask(True) is True
    header = UpdateGroupForbiddenRequestHeader(group="none", topic="T", readable=False)
    assert (await parts.ask(code, header)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_topics_and_subscription_of_a_group(parts: Parts) -> None:
    parts.offsets.assign("g", "T", 0, 1)
    parts.offsets.assign("g", "U", 0, 1)
    answer = await parts.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumerRequestHeader(group="g"))
    assert TopicList.decode(answer.body) == TopicList(ADDRESS, ["T", "U"])
    parts.join(Peer(), "c", "g", "T")
    header = QuerySubscriptionByConsumerRequestHeader(group="g", topic="T")
    body = QuerySubscriptionBody.decode((await parts.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)).body)
    assert body.subscriptionData is not None
    assert body.subscriptionData.subString == "TagA"
    header = QuerySubscriptionByConsumerRequestHeader(group="g", topic="other")
    body = QuerySubscriptionBody.decode((await parts.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)).body)
    assert body.subscriptionData is None
