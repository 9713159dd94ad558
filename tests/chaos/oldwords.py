"""Two members in namespaces and a connection between them that is cut and healed; prints what each side saw, as JSON.

To be started in a network namespace of its own: the commands of chaos/host/namespaces.py do that.
"""

import json
import subprocess
import sys
import time

from chaos.site.netns import NetLinks, Switch

LISTENS = """
import socket, sys
with socket.create_server(("0.0.0.0", 7000)) as server:
    print("ready", flush=True)
    peer, _ = server.accept()
    while data := peer.recv(100):
        print(data.decode(), flush=True)
"""
SPEAKS = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000), 5) as peer:
    print("ready", flush=True)
    for line in sys.stdin:
        peer.sendall(line.strip().encode())
"""
QUIET_S = 0.6


def main() -> None:
    """Cut one direction, speak, look that nothing arrives, heal, and look that it does."""
    switch = Switch(("a", "b"))
    try:
        switch.open()
        listener = started(switch.enter("b"), LISTENS)
        speaker = started(switch.enter("a"), SPEAKS, switch.addresses["b"])
        say(speaker, "one")
        first = line_of(listener)
        switch.cut([("a", "b")])
        spoken = time.monotonic()
        say(speaker, "two")
        time.sleep(QUIET_S)
        cut = {"dropped": switch.dropped(), "a reaches b": switch.reaches("a"), "b reaches a": switch.reaches("b")}
        began = time.monotonic()
        switch.heal()
        second = line_of(listener)
        healed = {"silent_s": began - spoken, "after_s": time.monotonic() - began, "a reaches b": switch.reaches("a")}
        switch.lose([("a", "b"), ("b", "a")], 1.0)
        lossy = {"a reaches b": switch.reaches("a")}
        switch.heal()
        lossy["healed"] = switch.reaches("a")
        for child in (speaker, listener):
            child.kill()
        counted = NetLinks(switch).counted
        told = {"first": first, "second": second, "cut": cut, "healed": healed, "lossy": lossy, "counted": counted}
        sys.stdout.write(json.dumps(told))
    finally:
        switch.close()


def started(enter: list[str], program: str, *arguments: str) -> "subprocess.Popen[str]":
    """Start a program where a member is, and return when it says that it is ready."""
    child = subprocess.Popen(
        [*enter, sys.executable, "-S", "-u", "-c", program, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert line_of(child) == "ready"
    return child


def line_of(child: "subprocess.Popen[str]") -> str:
    """Return the next line that a child prints."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def say(child: "subprocess.Popen[str]", word: str) -> None:
    """Hand a child a line."""
    assert child.stdin is not None
    child.stdin.write(word + "\n")
    child.stdin.flush()


if __name__ == "__main__":
    main()
