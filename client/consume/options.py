"""What a consumer is made with: wrong types and absurd values are told where it is made, not where they are used."""

from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from client.errors import ConsumeError
from client.message import ConsumeFrom, MessageModel
from client.options import count_of

L = TypeVar("L")


def check_start(from_where: Any, timestamp_ms: Any) -> int | None:
    """Return `timestamp_ms`; raises ConsumeError and ArgumentRefused for what is no place to begin at."""
    if not isinstance(from_where, ConsumeFrom):
        raise ConsumeError(f"from_where is {from_where!r}: it takes a ConsumeFrom")
    return None if timestamp_ms is None else count_of("timestamp_ms", timestamp_ms, 2**63 - 1, least=0)


def limits_of(limits: Any, default: L) -> L:
    """Return `limits`, `default` for None; raises ConsumeError unless they are of one kind."""
    if limits is None:
        return default
    if not isinstance(limits, type(default)):
        raise ConsumeError(f"the limits are {limits!r}: it takes {type(default).__name__}")
    return limits


def check_limits(limits: Any) -> None:
    """Raise ArgumentRefused unless each field is a number from 1 on, or None where that is the default."""
    for each in fields(limits):
        value = getattr(limits, each.name)
        if value is not None or each.default is not None:
            count_of(each.name, value, 2**63 - 1)


def offset_path(model: Any, folder: Path | None, instance_name: str | None, group: str) -> Path | None:
    """Return where a broadcasting consumer keeps its offsets, None for one that shares its group's.

    Raises ConsumeError when there is no home for them, and for what is no MessageModel.
    """
    if not isinstance(model, MessageModel):
        raise ConsumeError(f"the model is {model!r}: it takes a MessageModel")
    if model is not MessageModel.BROADCASTING:
        return None
    if folder is None:
        try:
            folder = Path.home() / ".raftmq_offsets"
        except RuntimeError as error:
            raise ConsumeError(f"offset_dir is not given, and there is no home directory: {error}") from error
    return Path(folder) / (instance_name or "DEFAULT") / group / "offsets.json"
