"""Bodies of access control (codes 3001 to 3010): users and policies as RocketMQ's tools write them.

A password stands in what is sent to a broker, never in what it answers.
"""

import msgspec

from remoting.bodies.base import Body


class UserInfo(Body, msgspec.Struct, omit_defaults=True):
    """A user; in an answer without a password."""

    username: str | None = None
    password: str | None = None
    userType: str | None = None
    userStatus: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.userType!r}, {self.userStatus!r})"


class PolicyEntryInfo(msgspec.Struct, omit_defaults=True):
    """One policy: about a resource, for some actions, from some addresses."""

    resource: str | None = None
    actions: list[str] = []
    sourceIps: list[str] | None = None
    decision: str | None = None


class PolicyInfo(msgspec.Struct, omit_defaults=True):
    """The policies of one type, Custom or Default."""

    policyType: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(Body, msgspec.Struct, omit_defaults=True):
    """What a subject, "User:name", may do."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None
