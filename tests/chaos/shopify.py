"""Shopify's Toxiproxy server, the judge of ours: built by Go, once per machine; or the reason why there is none."""

import os
import shutil
import subprocess
from pathlib import Path

VERSION = "v2.12.0"
SOURCE = f"github.com/Shopify/toxiproxy/v2/cmd/server@{VERSION}"
BUILD_TIMEOUT_S = 240


class NoShopify(Exception):
    """Toxiproxy cannot be built on this machine; the text says why."""


def program(folder: Path) -> Path:
    """Return the server's program, built in `folder` unless the user's cache has it; raises NoShopify."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raftmq"
    kept = cache / f"toxiproxy-server-{VERSION}"
    if kept.exists():
        return kept
    if shutil.which("go") is None:
        raise NoShopify(f"go is not on PATH, so that Toxiproxy {VERSION} cannot be built")
    environment = {**os.environ, "GOBIN": str(folder)}
    try:
        subprocess.run(
            ["go", "install", SOURCE], env=environment, check=True, capture_output=True, timeout=BUILD_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        raise NoShopify(f"go cannot build Toxiproxy {VERSION}: {error.stderr.decode().strip()[-300:]}") from error
    except subprocess.TimeoutExpired:
        raise NoShopify(f"go did not build Toxiproxy {VERSION} within {BUILD_TIMEOUT_S} s") from None
    cache.mkdir(parents=True, exist_ok=True)
    # Whole or not at all, for others may look for it at the same time.
    half = kept.with_suffix(f".{os.getpid()}")
    shutil.copy2(folder / "server", half)
    half.replace(kept)
    return kept
