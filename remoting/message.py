"""A stored message as its reader sees it."""

from dataclasses import dataclass, field

from remoting.msgid import offset_msg_id, pack_host
from remoting.properties import KEY_SEPARATOR, PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY


@dataclass(slots=True)
class MessageExt:
    """One decoded record. Times in ms since the epoch; `body` as stored (compressed when sys_flag says so)."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[str, int]
    store_timestamp: int
    store_host: tuple[str, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    body_crc: int
    properties: dict[str, str] = field(default_factory=dict)
    size: int = 0
    broker_name: str = ""

    @property
    def tags(self) -> str | None:
        """The TAGS property."""
        return self.properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys of the KEYS property, in their order."""
        return [key for key in self.properties.get(PROPERTY_KEYS, "").split(KEY_SEPARATOR) if key]

    @property
    def msg_id(self) -> str:
        """The client's unique key, or the offset id when the message has none."""
        return self.properties.get(PROPERTY_UNIQ_KEY) or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        """The id that names the place: store host and CommitLog position."""
        return offset_msg_id(pack_host(*self.store_host), self.physical_offset)
