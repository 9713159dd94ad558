"""Headers of access control (codes 3001 to 3010)."""

from remoting.codes import RequestCode
from remoting.headers.base import Header


class CreateUserRequestHeader(Header, kw_only=True):
    """3001: the password and the rest are in the body."""

    username: str = ""


class UpdateUserRequestHeader(Header, kw_only=True):
    """3002: what is to be changed is in the body."""

    username: str = ""


class DeleteUserRequestHeader(Header, kw_only=True):
    """3003."""

    username: str = ""


class GetUserRequestHeader(Header, kw_only=True):
    """3004."""

    username: str = ""


class ListUsersRequestHeader(Header, kw_only=True):
    """3005: part of the names, empty for all."""

    filter: str = ""


class CreateAclRequestHeader(Header, kw_only=True):
    """3006: the policies are in the body."""

    subject: str = ""


class UpdateAclRequestHeader(Header, kw_only=True):
    """3007: the policies are in the body."""

    subject: str = ""


class DeleteAclRequestHeader(Header, kw_only=True):
    """3008: everything of a subject, or what it has about one resource."""

    subject: str = ""
    policyType: str = ""
    resource: str = ""


class GetAclRequestHeader(Header, kw_only=True):
    """3009."""

    subject: str = ""


class ListAclsRequestHeader(Header, kw_only=True):
    """3010: parts of the subjects and of the resources, empty for all."""

    subjectFilter: str = ""
    resourceFilter: str = ""


ACL_HEADERS: dict[int, type[Header]] = {
    RequestCode.AUTH_CREATE_USER: CreateUserRequestHeader,
    RequestCode.AUTH_UPDATE_USER: UpdateUserRequestHeader,
    RequestCode.AUTH_DELETE_USER: DeleteUserRequestHeader,
    RequestCode.AUTH_GET_USER: GetUserRequestHeader,
    RequestCode.AUTH_LIST_USER: ListUsersRequestHeader,
    RequestCode.AUTH_CREATE_ACL: CreateAclRequestHeader,
    RequestCode.AUTH_UPDATE_ACL: UpdateAclRequestHeader,
    RequestCode.AUTH_DELETE_ACL: DeleteAclRequestHeader,
    RequestCode.AUTH_GET_ACL: GetAclRequestHeader,
    RequestCode.AUTH_LIST_ACL: ListAclsRequestHeader,
}
