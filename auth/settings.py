"""The keys of access control, RocketMQ's own: part of the broker's configuration and of the NameServer's.

Errors about them never show a value that may hold a secret.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from auth.directory import AccessDirectory
from auth.model import User, UserType
from auth.send_age import SEND_SECONDS, SEND_SECONDS_KEY
from remoting.signing import Credentials
from runtime.config import ConfigError

# Keys of classes in Java; each takes the names that stand here, with or without a package in front, or nothing.
_CLASS_KEYS = frozenset(
    {
        "authenticationProvider",
        "authenticationMetadataProvider",
        "authenticationStrategy",
        "authorizationProvider",
        "authorizationMetadataProvider",
        "authorizationStrategy",
    }
)
# What is shown in place of a secret.
HIDDEN = "(hidden)"
SECRET_KEYS = frozenset({"initAuthenticationUser", "innerClientAuthenticationCredentials"})
# Configuration keys that nobody changes over the network: they decide who may.
AUTH_KEYS_BY_HAND = frozenset(
    {
        "authenticationEnabled",
        "authorizationEnabled",
        "authenticationWhitelist",
        "authorizationWhitelist",
        SEND_SECONDS_KEY,
        *SECRET_KEYS,
        *_CLASS_KEYS,
    }
)


@dataclass(frozen=True)
class AuthKeys:
    """The part of a configuration that says who may do what; without authenticationEnabled nobody is asked."""

    authenticationEnabled: bool = False
    authenticationProvider: str = ""
    authenticationMetadataProvider: str = ""
    authenticationStrategy: str = ""
    authenticationWhitelist: str = ""  # request codes, separated by ',', that need no signature
    initAuthenticationUser: str = field(default="", repr=False)  # {"username":…,"password":…}: a super user
    innerClientAuthenticationCredentials: str = field(default="", repr=False)  # {"accessKey":…,"secretKey":…}
    authenticationSendLifetimeSeconds: int = 0  # signed sends that were made longer ago are refused; 0: none is
    authorizationEnabled: bool = False
    authorizationProvider: str = ""
    authorizationMetadataProvider: str = ""
    authorizationStrategy: str = ""
    authorizationWhitelist: str = ""  # request codes, separated by ',', that need no permission
    statefulAuthorizationCacheMaxNum: int = 10_000  # decisions that are remembered
    statefulAuthenticationCacheExpiredSecond: int = (
        60  # so long a connection's proof counts, with the stateful strategy
    )


def check_auth(keys: AuthKeys) -> None:
    """Raise ConfigError when the keys cannot be used, or not together."""
    _only("authenticationProvider", keys.authenticationProvider, "DefaultAuthenticationProvider")
    _only("authenticationMetadataProvider", keys.authenticationMetadataProvider, "LocalAuthenticationMetadataProvider")
    _only("authorizationProvider", keys.authorizationProvider, "DefaultAuthorizationProvider")
    _only("authorizationMetadataProvider", keys.authorizationMetadataProvider, "LocalAuthorizationMetadataProvider")
    # They differ in what they remember: here decisions are, with either; who was proved is with the stateful one.
    _only(
        "authenticationStrategy",
        keys.authenticationStrategy,
        "StatelessAuthenticationStrategy",
        "StatefulAuthenticationStrategy",
    )
    _only(
        "authorizationStrategy",
        keys.authorizationStrategy,
        "StatelessAuthorizationStrategy",
        "StatefulAuthorizationStrategy",
    )
    white_list("authenticationWhitelist", keys.authenticationWhitelist)
    white_list("authorizationWhitelist", keys.authorizationWhitelist)
    configured_users(keys)
    if keys.authenticationSendLifetimeSeconds and keys.authenticationSendLifetimeSeconds not in SEND_SECONDS:
        raise ConfigError(
            f"{SEND_SECONDS_KEY}={keys.authenticationSendLifetimeSeconds}: it takes seconds, "
            f"{SEND_SECONDS[0]} to {SEND_SECONDS[-1]}, or 0 for no bound"
        )
    if keys.authenticationSendLifetimeSeconds and not keys.authenticationEnabled:
        raise ConfigError(
            f"{SEND_SECONDS_KEY}={keys.authenticationSendLifetimeSeconds} takes authenticationEnabled=true: "
            "without a signature a send may say any time"
        )
    if keys.authorizationEnabled and not keys.authenticationEnabled:
        raise ConfigError(
            "authorizationEnabled=true takes authenticationEnabled=true: without it a request may say any name"
        )
    if keys.statefulAuthorizationCacheMaxNum <= 0:
        raise ConfigError(
            f"statefulAuthorizationCacheMaxNum={keys.statefulAuthorizationCacheMaxNum}: it takes a number above 0"
        )
    if keys.statefulAuthenticationCacheExpiredSecond <= 0:
        raise ConfigError(
            f"statefulAuthenticationCacheExpiredSecond={keys.statefulAuthenticationCacheExpiredSecond}: it takes a "
            "number of seconds above 0"
        )


def proof_lasts_s(keys: AuthKeys) -> float:
    """Return for how many seconds a connection that proved a user speaks for him unproved; 0: never."""
    stateful = keys.authenticationStrategy.endswith("StatefulAuthenticationStrategy")
    return float(keys.statefulAuthenticationCacheExpiredSecond) if stateful else 0.0


def check_members(keys: AuthKeys, whose: str) -> None:
    """Raise ConfigError when brokers that work together could not sign what they ask one another."""
    if keys.authenticationEnabled and not keys.innerClientAuthenticationCredentials:
        raise ConfigError(
            f"authenticationEnabled=true for {whose} takes innerClientAuthenticationCredentials, the same on all: "
            'what they ask one another is signed with {"accessKey":"…","secretKey":"…"}'
        )


def check_users(keys: AuthKeys, directory: AccessDirectory) -> None:
    """Raise ConfigError when access control is on and nobody is known who could ask for anything."""
    if keys.authenticationEnabled and not directory.users:
        raise ConfigError(
            "authenticationEnabled=true, and there is no user: name a super user in initAuthenticationUser, "
            'such as {"username":"admin","password":"…"}'
        )


def told(keys: AuthKeys) -> str:
    """Return what a start says of access control, in a sentence."""
    if not keys.authenticationEnabled:
        return "access control is off: whoever reaches this server may use it (authenticationEnabled, docs/security.md)"
    if not keys.authorizationEnabled:
        return "access control: every request is signed by a user, who may do everything but what is a super user's"
    return "access control: every request is signed by a user, and may do what his policies say"


def shown_config(values: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration as it may be shown: without secrets."""
    return {key: HIDDEN if key in SECRET_KEYS and value else value for key, value in values.items()}


def white_list(key: str, text: str) -> frozenset[int]:
    """Return the request codes of a list; raises ConfigError."""
    try:
        return frozenset(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigError(f"{key}={text}: it takes request codes with commas between them, such as 28,105") from None


def inner_credentials(keys: AuthKeys) -> Credentials | None:
    """Return what brokers sign with, None when nothing is said; raises ConfigError."""
    text = keys.innerClientAuthenticationCredentials
    key = "innerClientAuthenticationCredentials"
    return _credentials(key, text, "accessKey", "secretKey") if text.strip() else None


def configured_users(keys: AuthKeys) -> list[User]:
    """Return the super users that the configuration names; raises ConfigError."""
    users = {}
    if keys.initAuthenticationUser.strip():
        made = _credentials("initAuthenticationUser", keys.initAuthenticationUser, "username", "password")
        users[made.access_key] = User(made.access_key, made.secret_key, UserType.SUPER)
    inner = inner_credentials(keys)
    if inner is not None:
        users.setdefault(inner.access_key, User(inner.access_key, inner.secret_key, UserType.SUPER))
    return list(users.values())


def directory_of(keys: AuthKeys) -> AccessDirectory:
    """Return who is known by the configuration alone."""
    return AccessDirectory(configured_users(keys), inner_credentials(keys), keys.statefulAuthorizationCacheMaxNum)


def _only(key: str, value: str, *names: str) -> None:
    if value.rpartition(".")[2] not in {"", *names}:
        raise ConfigError(f"{key}={value}: {' and '.join(names)}: nothing else is available")


def _credentials(key: str, text: str, name: str, secret: str) -> Credentials:
    example = f'{{"{name}":"…","{secret}":"…"}}'
    try:
        value = json.loads(text)
        given = (value[name], value[secret])
    except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{key}: it takes {example}") from None
    try:
        return Credentials(*given)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{key}: it takes {example}: {error}") from None
