"""NATS JetStream: three clustered servers and a stream with three replicas in files."""

import asyncio
import json
import socket
import time
from pathlib import Path
from typing import Any

from chaos.host.processes import HOST, ProcessError, free_ports
from raftmq.bench.peers.processes import START_TIMEOUT_S, PeerProcess

SERVERS = 3
ANSWER_TIMEOUT_S = 5.0
POLL_S = 0.2
REPLY = "_INBOX.setup"
CONFIG = """server_name: {name}
listen: "{host}:{port}"
jetstream {{ store_dir: "{store}" }}
cluster {{
  name: peers
  listen: "{host}:{route}"
  routes: [{routes}]
}}
"""


class NatsSystem:
    """The servers, and the stream that takes what is published to `subject`."""

    protocol = "nats"

    def __init__(self, folder: Path, subject: str) -> None:
        self._subject = subject
        ports = free_ports(2 * SERVERS)
        self._ports, routes = ports[:SERVERS], ports[SERVERS:]
        told = ", ".join(f'"nats-route://{HOST}:{route}"' for route in routes)
        self._servers = []
        for number, (port, route) in enumerate(zip(self._ports, routes, strict=True)):
            home = folder / f"n{number}"
            home.mkdir(parents=True)
            config = home / "server.conf"
            values = {"name": f"n{number}", "host": HOST, "port": port, "route": route, "routes": told}
            config.write_text(CONFIG.format(**values, store=home / "store"))
            command = ["nats-server", "-c", str(config)]
            self._servers.append(PeerProcess(f"nats-server n{number}", command, home / "server.log", {}))

    def start(self) -> None:
        """Start the servers and make the stream; raises ProcessError."""
        for server in self._servers:
            server.launch()
        for server in self._servers:
            server.wait_until(lambda server=server: "Server is ready" in server.said())  # type: ignore[misc]
        config = {
            "name": self._subject, "subjects": [self._subject], "storage": "file", "num_replicas": SERVERS,
            "retention": "limits", "discard": "old", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1,
        }  # fmt: skip
        self._until_given("CREATE", config)

    async def port(self) -> int:
        """Return the port of the server that leads the stream; raises ProcessError."""
        return await asyncio.to_thread(self._leader_port)

    def settled(self) -> None:
        """Nothing has to be asked: a stream with fewer replicas is not made."""

    def pids(self) -> list[int]:
        """Return the processes that were started."""
        return [server.pid for server in self._servers]

    def kill(self) -> None:
        """End all servers at once."""
        for server in self._servers:
            server.kill()

    def _leader_port(self) -> int:
        leader = self._until_given("INFO", {})["cluster"]["leader"]
        return self._ports[int(leader.removeprefix("n"))]

    def _until_given(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask about the stream until the servers have elected who answers, and the stream has its leader."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                answer = ask(self._ports[0], f"$JS.API.STREAM.{verb}.{self._subject}", body)
            except OSError as error:
                answer = {"error": {"description": str(error)}}
            if "error" not in answer and (verb == "CREATE" or answer.get("cluster", {}).get("leader")):
                return answer
            if time.monotonic() > deadline or any(not server.alive for server in self._servers):
                why = answer.get("error", {}).get("description", "it has no leader")
                raise ProcessError(f"NATS does not give the stream: {why}\n{self._servers[0].last_words()}")
            time.sleep(POLL_S)


def ask(port: int, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send one request to a NATS server and return its answer; raises OSError, TimeoutError included."""
    connected = socket.create_connection((HOST, port), timeout=ANSWER_TIMEOUT_S)
    with connected as connection, connection.makefile("rwb") as stream:
        stream.readline()
        payload = json.dumps(body).encode()
        stream.write(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n')
        stream.write(f"SUB {REPLY} 1\r\nPUB {subject} {REPLY} {len(payload)}\r\n".encode() + payload + b"\r\n")
        stream.flush()
        while line := stream.readline():
            kind, *words = line.split()
            if kind == b"MSG":
                answer: dict[str, Any] = json.loads(stream.read(int(words[-1])))
                return answer
            if kind == b"HMSG":
                return {"error": {"description": "nobody answers yet"}}
            if kind == b"-ERR":
                raise ConnectionError(line.decode(errors="replace").strip())
            if kind == b"PING":
                stream.write(b"PONG\r\n")
                stream.flush()
    raise ConnectionError("the server closed the connection")
