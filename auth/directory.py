"""The users and policies in force, and the decisions that were made lately.

What is decided depends on nothing but users, policies and the access; so decisions are kept, and all forgotten at once
when a user or a policy changes.
"""

from collections.abc import Iterable, Mapping

from auth.decision import decide
from auth.model import Policies, User, UserStatus, UserType
from auth.needs import Access
from remoting.admission import address_of
from remoting.command import Command
from remoting.signing import ACCESS_KEY, Credentials, is_signed_by

DECISIONS_MAX = 10_000

NOBODY = "username cannot be null."
WRONG = "check signature failed."


class AccessDirectory:
    """Who is known, and what he may do. The tables that are handed in are not changed afterwards."""

    def __init__(
        self, configured: Iterable[User] = (), inner: Credentials | None = None, decisions_max: int = DECISIONS_MAX
    ) -> None:
        """Know `configured` without a table; `inner` is what brokers sign with, whatever a table says of it."""
        self._configured = {user.name: user for user in configured}
        self.inner = inner
        if inner is not None:
            self._configured.setdefault(inner.access_key, User(inner.access_key, inner.secret_key, UserType.SUPER))
        self._users: Mapping[str, User] = {}
        self._policies: Mapping[str, Policies] = {}
        self._decisions_max = decisions_max
        self._decisions: dict[tuple[str, Access, str], str | None] = {}
        self.changes = 0
        """How often the tables were changed: what was found out before holds no more."""

    def take(self, users: Mapping[str, User], policies: Mapping[str, Policies]) -> None:
        """Go by these tables from now on."""
        self._users, self._policies = users, policies
        self._decisions.clear()
        self.changes += 1

    @property
    def users(self) -> dict[str, User]:
        """Everybody who is known, by name."""
        return {**self._configured, **self._users}

    def configured(self, name: str) -> bool:
        """Tell whether a user is one of the configuration file's."""
        return name in self._configured

    def user(self, name: str) -> User | None:
        """Return a user; None when there is none of that name."""
        return self._users.get(name) or self._configured.get(name)

    def policies(self, name: str) -> Policies:
        """Return what a user may do; none of a user that there is not."""
        return self._policies.get(name, {})

    def secrets(self, user: User) -> tuple[str, ...]:
        """Return the secret keys that a user's requests may be signed with.

        Two of the brokers' own user: that of this broker's configuration, and the table's, while it is being changed.
        """
        inner = self.inner
        if inner is not None and user.name == inner.access_key and user.secret != inner.secret_key:
            return inner.secret_key, user.secret
        return (user.secret,)

    def unproved(self, request: Command) -> str | None:
        """Return why a request is signed by nobody who is known and enabled, None when it is: RocketMQ's words."""
        name = request.ext.get(ACCESS_KEY)
        if not name:
            return NOBODY
        user = self.user(name)
        if user is None:
            return f"User:{name} is not found."
        if not self.is_enabled(user):
            return f"User:{name} is disabled."
        return None if any(is_signed_by(request, secret) for secret in self.secrets(user)) else WRONG

    def is_enabled(self, user: User) -> bool:
        """Tell whether a user's requests are taken; the brokers' own always are."""
        return user.status is UserStatus.ENABLE or self.is_inner(user.name)

    def is_super(self, name: str) -> bool:
        """Tell whether a user may do everything."""
        user = self.user(name)
        return self.is_inner(name) or (user is not None and user.kind is UserType.SUPER)

    def is_inner(self, name: str) -> bool:
        """Tell whether a name is the brokers' own."""
        return self.inner is not None and name == self.inner.access_key

    def denied(self, name: str, access: Access, host: str) -> str | None:
        """Return why a normal user's access from an address is denied, None when it is allowed."""
        key = (name, access, host)
        decisions = self._decisions
        try:
            return decisions[key]
        except KeyError:
            pass
        made = decide(self.policies(name), access.resource, access.actions, address_of(host))
        if len(decisions) >= self._decisions_max:
            # The oldest: a dictionary keeps the order in which its keys came.
            del decisions[next(iter(decisions))]
        decisions[key] = made
        return made
