"""How clients decide on TLS: by argument, or by the environment, which commands and whole applications share.

RAFTMQ_TLS=true switches it on; RAFTMQ_TLS_CA names the authority that servers' certificates are of (else those that the
machine trusts), RAFTMQ_TLS_CERT and RAFTMQ_TLS_KEY what the client shows of itself. All are paths of PEM files.
"""

import os
from collections.abc import Mapping

from client.errors import ClientError
from runtime.config import ConfigError
from runtime.tls import ClientTls, Contexts, client_contexts

VARIABLE = "RAFTMQ_TLS"
_ON = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
    "": False,
}


def tls_of(asked: bool | ClientTls | None, environment: Mapping[str, str] = os.environ) -> Contexts | None:
    """Return what connections are made with, None for plain ones. Raises ClientError.

    `asked`: a ClientTls as it is, True and False as said, None as the environment says; True takes the files of the
    environment too.
    """
    if asked is None:
        said = environment.get(VARIABLE, "").strip().lower()
        if said not in _ON:
            raise ClientError(f"{VARIABLE}={said}: it takes true or false")
        asked = _ON[said]
    if asked is False:
        return None
    if asked is True:
        ca, cert, key = (environment.get(f"{VARIABLE}_{part}", "") for part in ("CA", "CERT", "KEY"))
        asked = ClientTls(ca, cert, key)
    if not isinstance(asked, ClientTls):
        raise ClientError(f"tls takes True, False or a ClientTls, not {type(asked).__name__}")
    try:
        return client_contexts(asked)
    except ConfigError as error:
        raise ClientError(str(error)) from error
