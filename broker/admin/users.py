"""Users and policies, by the administrator (codes 3001 to 3010), with RocketMQ's answers; and for slaves (9123).

Answers show no password. The users that the configuration file names are shown, and may be changed (the table then says
what counts), but not deleted: they would be back at once.
"""

import logging
import secrets

import msgspec

from auth.copy_proof import UsersChallenge, UsersRequest, is_copy_proof
from auth.model import PolicyEntry, PolicyType, ResourceKind, User, policy_type_of, resource_of, without_entry
from auth.wire import acl_shown, changed_user, made_user, refused, user_name, user_shown, with_policies
from broker.metadata.users import UserTable
from broker.reply import ok as answered
from broker.reply import whole_table
from remoting.audit import user_of
from remoting.bodies.acl import AclInfo, UserInfo
from remoting.codes import ClassicCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError, HeaderError
from remoting.fastjson import read_strictly
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
from remoting.server import Connection, Handler

_log = logging.getLogger(__name__)

# Bytes of a body: a thousand policies of some hundred bytes.
BODY_BYTES_MAX = 1024 * 1024
_BLANK = "The username is blank"
_BROKERS_ONLY = (
    "users are copied by slaves only, which prove with each copy that they know the secret key of "
    "innerClientAuthenticationCredentials: give both brokers the same, and the same version"
)
# At a connection: what the next proof is to be of.
_CHALLENGE = "users.challenge"
CHALLENGE_BYTES = 32
# RocketMQ's remark when all went well.
_WELL = "not set any response code"


class AdminUsers:
    """Handlers about users and policies."""

    def __init__(self, table: UserTable) -> None:
        self._table = table
        self._directory = table.directory

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.create_acl,
            RequestCode.AUTH_UPDATE_ACL: self.update_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
            ClassicCode.USERS: self.copy,
        }

    async def create_user(self, _connection: Connection, request: Command) -> Command:
        """3001: make a user."""
        name = request.header(CreateUserRequestHeader).username
        if not name:
            raise CommandError(ResponseCode.INVALID_PARAMETER, _BLANK)
        info = _user_info(request)
        self._check_super(request, info, None, "The super user can only be create by super user")
        if not name.strip():
            raise refused("username can not be blank")
        made = made_user(name, info)
        if self._user(name) is not None:
            raise refused("The user is existed")
        self._table.put(made)
        return await self._saved()

    async def update_user(self, _connection: Connection, request: Command) -> Command:
        """3002: change what is given of a user."""
        name = request.header(UpdateUserRequestHeader).username
        if not name:
            raise CommandError(ResponseCode.INVALID_PARAMETER, _BLANK)
        info, old = _user_info(request), self._user(name)
        self._check_super(request, info, old, "The super user can only be update by super user")
        if old is None:
            raise refused("The user is not exist")
        self._table.put(changed_user(old, info))
        return await self._saved()

    async def delete_user(self, _connection: Connection, request: Command) -> Command:
        """3003: remove a user with his policies; one that there is not is no error."""
        name = request.header(DeleteUserRequestHeader).username
        if not name.strip():
            raise refused("username can not be blank")
        self._check_super(request, UserInfo(), self._user(name), "The super user can only be update by super user")
        if self._directory.configured(name):
            raise refused(f"User:{name} is one of this broker's configuration file: take it out there")
        self._table.delete(name)
        return await self._saved()

    def get_user(self, _connection: Connection, request: Command) -> Command:
        """3004: a user; nothing of one that there is not."""
        name = request.header(GetUserRequestHeader).username
        if not name.strip():
            raise CommandError(ResponseCode.INVALID_PARAMETER, _BLANK)
        user = self._user(name)
        return _ok() if user is None else _ok(body=user_shown(user).encode())

    def list_users(self, _connection: Connection, request: Command) -> Command:
        """3005: the users whose names hold a text."""
        part = request.header(ListUsersRequestHeader).filter
        everybody = {**self._directory.users, **self._table.users}
        shown = [user_shown(everybody[name]) for name in sorted(everybody) if part in name]
        return _listed(shown, "ask with a filter")

    async def create_acl(self, _connection: Connection, request: Command) -> Command:
        """3006: add policies of a user; those about the same resources are replaced."""
        return await self._put_acl(request, request.header(CreateAclRequestHeader).subject)

    async def update_acl(self, _connection: Connection, request: Command) -> Command:
        """3007: the same, as in RocketMQ."""
        return await self._put_acl(request, request.header(UpdateAclRequestHeader).subject)

    async def delete_acl(self, _connection: Connection, request: Command) -> Command:
        """3008: remove the policy about a resource, or all of a user's."""
        header = request.header(DeleteAclRequestHeader)
        name = user_name(header.subject)
        if self._user(name) is None:
            raise refused("The subject is not exist.")
        old = self._table.policies.get(name)
        if old is None:
            raise refused("The acl is not exist.")
        resource = resource_of(header.resource)
        if header.resource.strip() and resource is None:
            # RocketMQ takes it for no resource, and removes everything.
            raise refused("The resource is null.")
        kind = policy_type_of(header.policyType)
        left = {} if resource is None else without_entry(old, kind or PolicyType.CUSTOM, resource)
        self._table.set_policies(name, left)
        return await self._saved()

    def get_acl(self, _connection: Connection, request: Command) -> Command:
        """3009: what a user may do; nothing when no policy says anything."""
        name = user_name(request.header(GetAclRequestHeader).subject)
        if self._user(name) is None:
            raise refused("The subject is not exist.")
        shown = acl_shown(name, self._table.policies.get(name, {}))
        return _ok() if shown is None else _ok(body=shown.encode())

    def list_acls(self, _connection: Connection, request: Command) -> Command:
        """3010: policies by parts of their subjects and resources."""
        header = request.header(ListAclsRequestHeader)

        def wanted(entry: PolicyEntry) -> bool:
            return header.resourceFilter in entry.resource.key

        policies, shown = self._table.policies, []
        for name in sorted(policies):
            if header.subjectFilter in f"User:{name}":
                acl = acl_shown(name, policies[name], wanted)
                if acl is not None:
                    shown.append(acl)
        return _listed(shown, "ask with filters")

    def copy(self, connection: Connection, request: Command) -> Command:
        """9123: the whole table with secret keys, to a slave that proves now what it is, and to nobody else."""
        if self._table.agreed:
            raise refused("in a Raft group users go through its log: nobody copies them from a member")
        inner = self._directory.inner
        user = None if inner is None else self._directory.user(inner.access_key)
        try:
            proof = read_strictly(request.body, UsersRequest).proof
        except msgspec.DecodeError:
            raise refused(_BROKERS_ONLY) from None
        if user is None:
            raise refused(_BROKERS_ONLY)
        if not proof:
            challenge = connection.attachments[_CHALLENGE] = secrets.token_hex(CHALLENGE_BYTES)
            return answered(body=msgspec.json.encode(UsersChallenge(challenge)))
        challenge = connection.attachments.pop(_CHALLENGE, "")
        if not challenge or not is_copy_proof(proof, self._directory.secrets(user), challenge):
            raise refused(_BROKERS_ONLY)
        return answered(body=whole_table(msgspec.json.encode(self._table.content()), "copy config/auth.json instead"))

    async def _put_acl(self, request: Command, subject: str) -> Command:
        info = AclInfo.decode(_body(request))
        if not info.policies:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        name = user_name(info.subject or subject)
        _check_asked_for(info)
        policies = with_policies(self._table.policies.get(name, {}), info.policies)
        if self._user(name) is None:
            raise refused(f"The subject of User:{name} is not exist.")
        self._table.set_policies(name, policies)
        return await self._saved()

    def _user(self, name: str) -> User | None:
        return self._table.users.get(name) or self._directory.user(name)

    def _check_super(self, request: Command, info: UserInfo, old: User | None, why: str) -> None:
        """Refuse what makes or changes a super user, unless a super user asks; RocketMQ's words."""
        asker = user_of(request)
        if not asker or self._directory.is_super(asker):
            return
        if (info.userType or "").lower() == "super":
            raise CommandError(ResponseCode.SYSTEM_ERROR, why)
        if old is not None and self._directory.is_super(old.name):
            raise refused(why)

    async def _saved(self) -> Command:
        try:
            await self._table.save()
        except OSError as error:
            _log.error("users and policies cannot be written: %s", error)
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"the change counts, but cannot be written: {error.strerror or error}"
            ) from None
        return _ok()


def _ok(body: bytes = b"") -> Command:
    return Command.response(ResponseCode.SUCCESS, _WELL, body=body)


def _body(request: Command) -> bytes:
    if len(request.body) > BODY_BYTES_MAX:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"the body has more than {BODY_BYTES_MAX} bytes")
    return bytes(request.body)


def _check_asked_for(info: AclInfo) -> None:
    """Refuse a policy that would decide nothing: whoever makes it believes that something is denied now, or allowed."""
    for policy in info.policies or ():
        for each in policy.entries or ():
            resource = resource_of(each.resource or "")
            if resource is not None and resource.kind is ResourceKind.NAMESPACE:
                raise refused(
                    f"a policy about {resource.key} decides nothing, for no request asks for a namespace: name what is "
                    "in it by how it begins, such as Topic:NAMESPACE%* and Group:NAMESPACE%*"
                )


def _user_info(request: Command) -> UserInfo:
    try:
        return UserInfo.decode(_body(request))
    except HeaderError:
        # Its text could quote the password.
        raise CommandError(ResponseCode.INVALID_PARAMETER, "the body is no user") from None


def _listed(shown: list[UserInfo] | list[AclInfo], hint: str) -> Command:
    return _ok(body=whole_table(msgspec.json.encode(shown), hint)) if shown else _ok()
