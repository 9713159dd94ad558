"""Compressed registrations: a hundred thousand topics fit, and more than a broker may have are not even made."""

from pathlib import Path

import pytest

from remoting.bodies.registry import DataVersion
from remoting.errors import HeaderError
from tests.unit.test_namesrv_handlers import BROKER, Desk, registration


def test_a_hundred_thousand_topics_in_one_registration(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    names = [f"topic-{number:06d}" for number in range(100_000)]
    version = DataVersion(7, 3, 1)
    body = registration(*names, version=version).encode_compressed()
    assert len(body) < 16 * 1024 * 1024
    desk.ask(103, {**BROKER, "haServerAddr": "", "compressed": "true"}, body)
    assert desk.topics(206) == names
    assert desk.ask(322, BROKER, version.encode()).ext == {"changed": "false"}
    # The topics differ in nothing but their names, so they share one entry.
    assert len({id(queue) for queue in desk.routes.queues["a"].values()}) == 1


def test_a_registration_of_too_many_topics_is_refused_before_they_are_made(tmp_path: Path) -> None:
    desk = Desk(tmp_path, topicsPerBrokerMax=2)
    body = registration("t", "u", "v").encode_compressed()
    fields = {**BROKER, "haServerAddr": "", "compressed": "true"}
    with pytest.raises(HeaderError, match="the compressed registration holds 3 topics, 2 is the limit"):
        desk.ask(103, fields, body)
    desk.ask(103, fields, registration("t", "u").encode_compressed())
    assert desk.topics(206) == ["t", "u"]
