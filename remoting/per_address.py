"""Connections of one address: nobody takes all that a port has. Pure counting; loopback is not bounded.

Whoever is on this machine can cost it more than connections, and proxies, side cars and health checks come from there.
"""

from collections import Counter

from runtime.listening import is_loopback, origin


class PerAddress:
    """How many connections each address has, and whether it may have one more."""

    def __init__(self, limit: int) -> None:
        """`limit` is how many connections one address may have."""
        self.limit = limit
        self._open: Counter[str] = Counter()

    def enter(self, host: str) -> bool:
        """Count a connection in; False when the address has as many as it may."""
        if is_loopback(host):
            return True
        of = origin(host)
        if self._open[of] >= self.limit:
            return False
        self._open[of] += 1
        return True

    def leave(self, host: str) -> None:
        """Count a connection out that was counted in."""
        if is_loopback(host):
            return
        of = origin(host)
        self._open[of] -= 1
        if self._open[of] <= 0:
            del self._open[of]
