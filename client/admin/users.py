"""Administration of users and of what they may do (RocketMQ's ACL 2.0).

Each broker group has users of its own, so a change goes to every master unless one is named. What is wrong is refused
by the broker, in a RequestRefused that says why; no answer holds a secret key.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from client.admin.base import AdminBase
from remoting.bodies.registry import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.errors import HeaderError
from remoting.headers.acl import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateAclRequestHeader,
    UpdateUserRequestHeader,
)
from remoting.headers.base import Header


class UserAdmin(AdminBase):
    """Users and policies."""

    async def create_user(
        self,
        user: str,
        secret_key: str,
        *,
        super_user: bool = False,
        cluster: str | None = None,
        address: str | None = None,
    ) -> list[str]:
        """Make a user at one broker or at all masters; returns the addresses."""
        info = UserInfo(user, secret_key, "Super" if super_user else "Normal", "enable")
        header = CreateUserRequestHeader(username=user)
        return await self._change_at(RequestCode.AUTH_CREATE_USER, header, info.encode(), cluster, address)

    async def update_user(
        self,
        user: str,
        *,
        secret_key: str | None = None,
        super_user: bool | None = None,
        enabled: bool | None = None,
        cluster: str | None = None,
        address: str | None = None,
    ) -> list[str]:
        """Change what is given of a user; returns the addresses. A new secret key counts at once."""
        info = UserInfo(
            user,
            secret_key,
            None if super_user is None else "Super" if super_user else "Normal",
            None if enabled is None else "enable" if enabled else "disable",
        )
        header = UpdateUserRequestHeader(username=user)
        return await self._change_at(RequestCode.AUTH_UPDATE_USER, header, info.encode(), cluster, address)

    async def delete_user(self, user: str, *, cluster: str | None = None, address: str | None = None) -> list[str]:
        """Remove a user with all that he may do; returns the addresses."""
        header = DeleteUserRequestHeader(username=user)
        return await self._change_at(RequestCode.AUTH_DELETE_USER, header, b"", cluster, address)

    async def user(self, user: str, address: str) -> UserInfo | None:
        """Return a user of a broker, None when it has none of that name."""
        answer = await self._call(address, RequestCode.AUTH_GET_USER, GetUserRequestHeader(username=user))
        return UserInfo.decode(answer.body) if answer.body else None

    async def users(self, address: str, part: str = "") -> list[UserInfo]:
        """Return the users of a broker whose names hold a text."""
        answer = await self._call(address, RequestCode.AUTH_LIST_USER, ListUsersRequestHeader(filter=part))
        return [UserInfo.from_object(row) for row in _rows(answer)]

    async def set_policy(
        self,
        user: str,
        resource: str,
        actions: Sequence[str],
        *,
        allow: bool = True,
        sources: Sequence[str] = (),
        cluster: str | None = None,
        address: str | None = None,
    ) -> list[str]:
        """Say what a user may, or may not, do with a resource, in place of what was said about it.

        `resource` is such as "Topic:orders", "Topic:pay*" or "Group:*"; `sources` are addresses and networks.
        """
        entry = PolicyEntryInfo(resource, list(actions), list(sources) or None, "Allow" if allow else "Deny")
        info = AclInfo(f"User:{user}", [PolicyInfo("Custom", [entry])])
        header = UpdateAclRequestHeader(subject=f"User:{user}")
        return await self._change_at(RequestCode.AUTH_UPDATE_ACL, header, info.encode(), cluster, address)

    async def set_policies(
        self, user: str, policies: Sequence[PolicyInfo], *, cluster: str | None = None, address: str | None = None
    ) -> list[str]:
        """Say several things of what a user may do in one change, custom and default ones; returns the addresses."""
        info = AclInfo(f"User:{user}", list(policies))
        header = CreateAclRequestHeader(subject=f"User:{user}")
        return await self._change_at(RequestCode.AUTH_CREATE_ACL, header, info.encode(), cluster, address)

    async def delete_policies(
        self, user: str, resource: str = "", *, cluster: str | None = None, address: str | None = None
    ) -> list[str]:
        """Remove what is said about a resource, or everything, of a user; returns the addresses."""
        header = DeleteAclRequestHeader(subject=f"User:{user}", resource=resource)
        return await self._change_at(RequestCode.AUTH_DELETE_ACL, header, b"", cluster, address)

    async def policies_of(self, user: str, address: str) -> AclInfo | None:
        """Return what a user may do at a broker, None when nothing is said."""
        answer = await self._call(address, RequestCode.AUTH_GET_ACL, GetAclRequestHeader(subject=f"User:{user}"))
        return AclInfo.decode(answer.body) if answer.body else None

    async def policies(self, address: str, user_part: str = "", resource_part: str = "") -> list[AclInfo]:
        """Return what users may do at a broker, by parts of the users' names and of the resources."""
        header = ListAclsRequestHeader(subjectFilter=user_part, resourceFilter=resource_part)
        answer = await self._call(address, RequestCode.AUTH_LIST_ACL, header)
        return [AclInfo.from_object(row) for row in _rows(answer)]

    async def _change_at(
        self, code: RequestCode, header: Header, body: bytes, cluster: str | None, address: str | None
    ) -> list[str]:
        addresses = await self.masters(cluster, address)
        for each in addresses:
            await self._call(each, code, header, body)
        return addresses


def policy_rows(acl: AclInfo) -> list[dict[str, Any]]:
    """Return each policy of a user as a row."""
    return [
        {"user": (acl.subject or "").removeprefix("User:"), "type": policy.policyType, **msgspec.to_builtins(entry)}
        for policy in acl.policies or []
        for entry in policy.entries or []
    ]


def _rows(answer: Command) -> list[object]:
    if not answer.body:
        return []
    try:
        found = orjson.loads(bytes(answer.body))
    except orjson.JSONDecodeError as error:
        raise HeaderError(f"the answer is no list: {error}") from None
    if not isinstance(found, list):
        raise HeaderError("the answer is no list")
    return found
