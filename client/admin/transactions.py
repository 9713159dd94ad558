"""Administration of transactions: what is undecided, and having producers asked again."""

from typing import Any

import orjson

from client.admin.base import AdminBase
from remoting.codes import RequestCode, TransactionCode
from remoting.headers.registry import ResumeCheckHalfMessageRequestHeader


class TransactionAdmin(AdminBase):
    """Half messages of a broker."""

    async def transactions(self, address: str, *, limit: int | None = None, group: str | None = None) -> dict[str, Any]:
        """Return what a broker that leads has undecided and given up, as its HTTP face shows at /v1/transactions.

        `limit`: up to 500 of each, 100 without it; `group`: those of one producer group.
        """
        asked = {name: value for name, value in (("limit", limit), ("group", group)) if value is not None}
        answer = await self._call(address, TransactionCode.STATUS, body=orjson.dumps(asked) if asked else b"")
        found: dict[str, Any] = orjson.loads(bytes(answer.body))
        return found

    async def check_transaction(self, half_id: str, address: str, topic: str | None = None) -> None:
        """Have the producer of a half message asked anew, from the first check on: one pending, or one given up.

        `half_id` is the offset id that `transactions` shows. RequestRefused when the transaction is over.
        """
        header = ResumeCheckHalfMessageRequestHeader(topic=topic, msgId=half_id)
        await self._call(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
