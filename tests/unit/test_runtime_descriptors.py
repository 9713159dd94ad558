"""runtime/descriptors.py: connections follow what the system allows."""

import resource

import pytest

from remoting.limits import server_limits
from runtime.descriptors import connections_possible

ENDLESS = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "possible"),
    [
        (1024, 524_288, 21_024, 20_000),
        (1024, 4096, 4096, 3072),
        (1024, 1024, None, 512),
        (256, 256, None, 128),
        (65_536, 65_536, None, 20_000),
        (1024, ENDLESS, 21_024, 20_000),
        (ENDLESS, ENDLESS, None, 20_000),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_needed(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int | None, possible: int
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    assert connections_possible(20_000) == possible
    assert asked == ([] if raised is None else [(raised, hard)])


@pytest.mark.parametrize(("soft", "level"), [(256, "WARNING"), (8192, "INFO")])
def test_fewer_connections_than_usual_are_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, soft: int, level: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    with caplog.at_level("INFO"):
        limits = server_limits(7.0, 2)
    assert limits.idle_seconds == 7.0
    assert limits.connections_max == (soft - min(1024, soft // 2)) // 2
    assert [record.levelname for record in caplog.records] == [level]
    assert limits.connections_per_address_max == limits.connections_max // 4


@pytest.mark.parametrize(("asked", "given"), [(0, 4096), (7, 7), (19_000, 19_000)])
def test_an_address_has_its_part(monkeypatch: pytest.MonkeyPatch, asked: int, given: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (ENDLESS, ENDLESS))
    assert server_limits(7.0, per_address=asked).connections_per_address_max == given
