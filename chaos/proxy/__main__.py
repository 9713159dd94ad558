"""`python -m chaos.proxy`: the fault proxies in a process of their own."""

import argparse
import sys

from chaos.proxy.server import HOST, PORT, FaultProxyServer
from runtime import loop

EXIT_PORT_TAKEN = 1


async def serve(host: str, port: int, seed: int) -> int:
    """Serve until SIGTERM or SIGINT; the first line on stdout tells the address. Returns the exit code."""
    server = FaultProxyServer(seed)
    stopped = loop.stop_event()
    try:
        await server.start(host, port)
    except OSError as error:
        print(f"cannot listen on {host}:{port}: {error}; give another --port", file=sys.stderr)
        return EXIT_PORT_TAKEN
    print(f"http://{host}:{server.port}", flush=True)
    await stopped.wait()
    await server.close()
    return 0


def main() -> int:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos.proxy", description="Fault proxies with Toxiproxy's HTTP API."
    )
    parser.add_argument("--host", default=HOST, help="where the HTTP API listens (default: %(default)s)")
    parser.add_argument("--port", type=int, default=PORT, help="its port, 0 for any free one (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="where toxicity, jitter and slices come from")
    given = parser.parse_args()
    return loop.run(serve(given.host, given.port, given.seed))


if __name__ == "__main__":
    sys.exit(main())
