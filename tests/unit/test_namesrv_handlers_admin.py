"""What administrators may send a NameServer."""

from pathlib import Path
from typing import Any, cast

import pytest

from namesrv.config import LiveNamesrvConfig, NamesrvConfig
from namesrv.handlers_admin import CONFIG_BYTES_MAX, ConfigHandlers
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection


class Peer:
    """Stands for a connection, of which the handler wants the peer's name alone."""

    peer = ("10.0.0.9", 5000)


def test_a_change_of_settings_takes_256_KiB(tmp_path: Path) -> None:
    config = LiveNamesrvConfig(NamesrvConfig(configStorePath=str(tmp_path / "ns.properties")))
    handlers, peer = ConfigHandlers(cast(Any, None), config), cast(Connection, Peer())
    lines = b"orderMessageEnable=true\n"
    handlers.update_config(peer, Command.request(318, body=lines + b"#" * (CONFIG_BYTES_MAX - len(lines))))
    assert config.now.orderMessageEnable
    with pytest.raises(CommandError, match="262145 bytes of 262144"):
        handlers.update_config(peer, Command.request(318, body=lines + b"#" * (CONFIG_BYTES_MAX + 1 - len(lines))))
