"""Scenarios over a secured cluster: faults work as over a plain one, and strangers are refused at every port."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from chaos.faults.base import wait_until
from chaos.host.security import connecting_to
from chaos.report.report import write_report
from chaos.report.text import sentence
from chaos.runs.run import run
from chaos.runs.scenario import Scenario, promised
from chaos.runs.scenarios import SCENARIOS
from chaos.runs.schedule import Planned, Schedule
from chaos.runs.self_checks import SECURED_CHECK
from chaos.runs.session import may_run
from chaos.site.doors import try_doors
from chaos.site.site import Site
from client.admin.client import AdminClient
from client.credentials import Credentials
from pipeline.history.folder import RunFolder
from pipeline.history.results import Verdict
from runtime.tls import ClientTls
from tests.chaos.possible import capabilities
from tests.chaos.verdicts import assert_valid

SECONDS = 8.0
# Between two faults so many sends are acknowledged.
STEP = 250
# A process that comes back, a link that is cut by a proxy, an order that is signed.
FAULTS = ("kill-leader", "cut-leader-to-follower", "transfer-leader")
RAFT_TLS_OFF: Mapping[str, object] = dict.fromkeys(("raftTlsCertFile", "raftTlsKeyFile", "raftTlsCaFile"), "")
AUTH_OFF: Mapping[str, object] = {"authenticationEnabled": False, "authorizationEnabled": False}


def scenario(faults: tuple[str, ...], **changes: object) -> Scenario:
    fields = {"workloads": ("send", "groups"), "rate": 400.0, "links": True, "secure": True, **changes}
    promises = promised("raft", 3, faults_min=1, leader_change_on=("kill-leader",))
    return Scenario(
        "secured", promises, faults=faults, seconds=SECONDS, acknowledged_min=300, **fields,  # type: ignore[arg-type] # as the caller gives them
    )  # fmt: skip


def schedule(*names: str) -> Schedule:
    planned = (
        Planned(number, name, after=STEP * (number + 1), idle_ms=4000, lasts_ms=1000, seed=number)
        for number, name in enumerate(names)
    )
    return Schedule("secured", 1, tuple(planned))


@contextlib.asynccontextmanager
async def opened(folder: Path, **options: object) -> AsyncIterator[Site]:
    site = Site(folder, secure=True, **options)  # type: ignore[arg-type] # as the caller gives them
    await site.open()
    try:
        yield site
    finally:
        await site.close()


@pytest.mark.timeout(180)
async def test_a_secured_group_keeps_its_promises_and_its_report_says_how_it_ran(tmp_path: Path) -> None:
    results = await run(scenario(FAULTS), 1, tmp_path, schedule(*FAULTS))
    assert_valid(results, tmp_path)
    judged = {finding.check: finding for finding in results.findings}
    # At the NameServer and each member three ways of asking, at each Raft port one; before the load, and after it.
    assert judged[SECURED_CHECK].count == 2 * (4 * 3 + 3)
    found = RunFolder(tmp_path)
    assert [fault.name for fault in found.faults() if fault.effect] == list(FAULTS)
    refused = " ".join(found.info()["secured"]["in the end"]["refused"])
    for words in (
        "takes TLS only",
        "username cannot be null",
        "check signature failed",
        "without a certificate: closed",
    ):
        assert words in refused
    reported = write_report(tmp_path)
    assert "(seed 1, secured)" in sentence(reported)
    assert "--secure" in reported.replay


@pytest.mark.timeout(60)
async def test_who_lacks_tls_or_a_signature_is_told_so_and_members_answer_https(tmp_path: Path) -> None:
    async with opened(tmp_path, mode="single", nodes=1) as site:
        assert site.security is not None
        trusted = ClientTls(str(site.security.authority))
        admin = Credentials(site.security.access_key, site.security.secret_key)
        (member,) = site.members
        with connecting_to(site.security):
            async with AdminClient(site.namesrv) as known:
                await known.runtime_info(member.process.address)
        for tls, credentials, words in (
            (False, admin, "takes TLS only"),
            (trusted, None, "username cannot be null"),
            (trusted, Credentials(admin.access_key, "another"), "check signature failed"),
        ):
            with connecting_to(None):
                async with AdminClient(site.namesrv, tls=tls, credentials=credentials) as stranger:
                    with pytest.raises(Exception, match=words):
                        await stranger.runtime_info(member.process.address)
        # One request of it has two seconds, which a machine at work may take.
        await wait_until("the member answers over TLS", partial(asyncio.to_thread, member.process.ready))
        # Over TLS: another authority's word for it is not taken.
        (tmp_path / "another").mkdir()
        other = Site(tmp_path / "another", mode="single", nodes=1, secure=True)
        assert other.security is not None
        member.process.tls = other.security.trusting()
        assert not member.process.ready()


@pytest.mark.long
@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("mode", "settings", "taken"),
    [
        ("raft", AUTH_OFF, ["n0 clients, unsigned: answered", "n2 clients, signed by another key: answered"]),
        ("raft", {"tls.server.mode": "permissive"}, ["n0 clients, signed, without TLS: answered"]),
        ("raft", RAFT_TLS_OFF, ["n0 raft, without a certificate: no TLS"]),
        ("sync", {"tls.server.mode": "permissive", "haSecretFile": ""}, ["master ha, without TLS: "]),
        ("sync", {"haSecretFile": ""}, ["master ha, without the secret: "]),
    ],
)  # fmt: skip
async def test_a_cluster_that_is_not_secured_is_found_out(
    tmp_path: Path, mode: str, settings: Mapping[str, object], taken: list[str]
) -> None:
    nodes = 2 if mode == "sync" else 3
    async with opened(tmp_path, mode=mode, nodes=nodes, settings=settings) as site:
        told = await site.try_doors()
    for words in taken:
        assert any(one.startswith(words) for one in told["taken"]), told
    # What is configured as it should be is not called open.
    assert len(told["refused"]) >= 3, told


async def test_who_is_not_there_has_refused_nobody(tmp_path: Path) -> None:
    site = Site(tmp_path, mode="single", nodes=1, secure=True)
    assert site.security is not None
    told = await try_doors({"single": {"clients": site.addresses[0], "raft": site.addresses[0]}}, site.security)
    assert (told["refused"], told["taken"], len(told["unclear"])) == ([], [], 4)


@pytest.mark.timeout(180)
async def test_between_network_namespaces(tmp_path: Path) -> None:
    """Members listen on addresses of their own, which the certificate names; HTTP takes TLS only there."""
    lacking = may_run(SCENARIOS["network"], capabilities())
    if lacking is not None:
        pytest.skip(lacking.why)
    chosen = replace(scenario(("net-isolate-leader",)), links=False)
    results = await run(chosen, 1, tmp_path, schedule("net-isolate-leader"))
    assert_valid(results, tmp_path)
    assert {SECURED_CHECK} <= {one.check for one in results.findings if one.verdict is Verdict.VALID}
