"""What can go wrong between a program and a fault proxy server; each error says in its text what, where and why."""


class ToxiError(Exception):
    """A fault proxy server does not do what was asked; the text says which, what, and why."""


class ToxiUnreachable(ToxiError):
    """It did not answer within the timeouts, however often it was asked."""


class ToxiExists(ToxiError):
    """There is one of this name already."""


class ToxiNotFound(ToxiError):
    """There is none of this name."""


class ToxiRefused(ToxiError):
    """What was asked for is wrong, or not possible on this server."""


class LaunchError(ToxiError):
    """A fault proxy server cannot be started; the text says why."""
