"""The headers of answers to pulls, as JSON: fields in the order in which RocketMQ's own stand, which is the same."""

import struct

from remoting.codes import VERSION
from store.types import GetStatus

words = struct.Struct(">II").pack
# A template of what stands before the offset to go on from, and one of what stands behind it, up to the remark.
BEFORE = b'{"code":%d,"extFields":{"suggestWhichBrokerId":"%d","groupSysFlag":"%d","nextBeginOffset":"'
_BEHIND = b'","maxOffset":"%d","minOffset":"%d","topicSysFlag":"%d"},"flag":1,"language":"JAVA","opaque":%d,"remark":"'
_END = b'","serializeTypeCurrentRPC":"JSON","version":' + str(VERSION).encode() + b"}"
TEMPLATE = BEFORE + b"%d" + _BEHIND + b"%b" + _END
FOUND_BEHIND = _BEHIND + GetStatus.FOUND.name.encode() + _END
