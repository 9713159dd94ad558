"""What tests of transactions send: prepared messages and their ends, as official clients form them."""

from collections.abc import Mapping

from remoting.headers.registry import EndTransactionRequestHeader, SendMessageRequestHeaderV2
from remoting.msgid import parse_offset_msg_id

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
GROUP = "TxGroup"


def prepared(key: str, topic: str = "T", queue_id: int = 0, more: str = "") -> SendMessageRequestHeaderV2:
    """A half message, as the Java client sends it."""
    return SendMessageRequestHeaderV2(
        producerGroup=GROUP,
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=queue_id,
        sysFlag=4,
        bornTimestamp=1_700_000_000_000,
        flag=7,
        properties=f"KEYS\x01{key}\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01{key}\x02WAIT\x01true\x02PGROUP\x01{GROUP}\x02"
        f"TAGS\x01Tx\x02{more}",
        reconsumeTimes=0,
    )


def ends(
    stored: Mapping[str, str], how: int, *, group: str = GROUP, checked: bool = False
) -> EndTransactionRequestHeader:
    """The end of a transaction whose half message was answered with these fields."""
    return EndTransactionRequestHeader(
        topic="T",
        producerGroup=group,
        tranStateTableOffset=int(stored["queueOffset"]),
        commitLogOffset=parse_offset_msg_id(stored["msgId"])[1],
        commitOrRollback=how,
        fromTransactionCheck=checked,
        msgId=stored["transactionId"],
        transactionId=stored["transactionId"],
    )
