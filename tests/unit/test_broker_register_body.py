"""broker/registration/body.py: a large table goes in pieces, and only all of them together are the table."""

import random

import pytest

from broker.registration import body as register_body
from broker.registration.body import RegistrationPiece, registration_pieces
from namesrv.routes import Address, RouteTable
from namesrv.routes import BrokerRegistration as Claim
from remoting.bodies.registry import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from runtime.clock import ManualClock

VERSION = DataVersion(41, 3, 77)
WHO = Address("C", "a:1")


def topics(count: int, queues: int = 4) -> dict[str, TopicConfig]:
    return {f"T{number}": TopicConfig(f"T{number}", queues, queues) for number in range(count)}


def read(piece: RegistrationPiece) -> TopicConfigTable:
    decode = RegisterBrokerBody.decode_compressed if piece.compressed else RegisterBrokerBody.decode
    return decode(piece.body).topicConfigSerializeWrapper


def claim(piece: RegistrationPiece) -> Claim:
    table = read(piece)
    return Claim(
        cluster="C",
        broker_name="b",
        broker_id=0,
        address="a:1",
        ha_address="",
        version=table.dataVersion,
        topics=table.topicConfigTable,
        mappings={},
        filter_servers=(),
        silence_ms=None,
        acting_master=False,
        zone=None,
        link=1,
    )


def test_a_table_that_fits_goes_in_one_piece_with_its_version() -> None:
    (piece,) = registration_pieces(topics(900), VERSION, compressed=False, piece_topics=None)
    assert not piece.compressed
    assert read(piece).dataVersion == VERSION
    assert read(piece).topicConfigTable == topics(900)
    (squeezed,) = registration_pieces(topics(900), VERSION, compressed=True, piece_topics=None)
    assert squeezed.compressed
    assert read(squeezed).topicConfigTable == topics(900)
    (empty,) = registration_pieces({}, VERSION, compressed=False, piece_topics=800)
    assert read(empty).dataVersion == VERSION


@pytest.mark.parametrize("compressed", [False, True])
def test_a_split_table_is_the_table_and_only_the_last_piece_has_its_version(compressed: bool) -> None:
    pieces = registration_pieces(topics(2001), VERSION, compressed=compressed, piece_topics=800)
    tables = [read(piece) for piece in pieces]
    assert [len(table.topicConfigTable) for table in tables] == [800, 800, 401]
    together = {name: topic for table in tables for name, topic in table.topicConfigTable.items()}
    assert together == topics(2001)
    versions = [table.dataVersion for table in tables]
    assert versions[-1] == VERSION
    assert all(version.counter < 0 and version.stateVersion == VERSION.stateVersion for version in versions[:-1])
    assert len(set(map(str, versions))) == len(versions)


def test_what_does_not_fit_a_frame_is_split_whatever_the_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_body, "PIECE_BYTES_MAX", 5000)
    monkeypatch.setattr(register_body, "COMPRESS_BYTES", 1000)
    names = random.Random(5)
    table = {f"{names.getrandbits(400):x}": TopicConfig("x") for _ in range(1000)}
    table = {name: TopicConfig(name) for name in table}
    pieces = registration_pieces(table, VERSION, compressed=False, piece_topics=None)
    assert len(pieces) > 10
    assert all(len(piece.body) <= 5000 and piece.compressed for piece in pieces)
    tables = [read(piece) for piece in pieces]
    assert {name: topic for part in tables for name, topic in part.topicConfigTable.items()} == table
    assert [part.dataVersion == VERSION for part in tables] == [False] * (len(pieces) - 1) + [True]


def route_table() -> RouteTable:
    return RouteTable(ManualClock(), topics_per_broker_max=10_000, brokers_max=10, epochs_max=20)


def test_a_name_server_learns_every_change_in_every_piece() -> None:
    routes = route_table()
    for queues in (4, 9):
        version = DataVersion(queues, 0, queues)
        for piece in registration_pieces(topics(30, queues), version, compressed=False, piece_topics=10):
            routes.register(claim(piece))
        assert {queue.readQueueNums for queue in (table for table in routes.queues["b"].values())} == {queues}
        assert routes.query_version(WHO, "b", 0, version, 1) == (False, version)


def test_a_round_that_broke_off_is_not_taken_for_a_whole_one() -> None:
    routes = route_table()
    pieces = registration_pieces(topics(30), VERSION, compressed=False, piece_topics=10)
    for piece in pieces[:1]:
        routes.register(claim(piece))
        assert routes.query_version(WHO, "b", 0, VERSION, 1)[0]
    # The next change of the table is sent again in as many pieces: the first is no repetition of the one before.
    changed = registration_pieces(topics(30, 7), DataVersion(42, 3, 99), compressed=False, piece_topics=10)
    for piece in changed:
        routes.register(claim(piece))
    assert {queue.readQueueNums for queue in routes.queues["b"].values()} == {7}
