"""Administration of a cluster: what the daily commands need. One class, by theme in this room.

Every method raises client.errors.RequestFailed (RequestRefused for a refusal), and RouteError when no NameServer
answers or a name is not known. Addresses are "host:port", times ms since the epoch.
"""

from client.admin.base import BrokerEntry
from client.admin.cluster import ClusterAdmin
from client.admin.convert import ConvertAdmin
from client.admin.groups import GroupProgress, QueueProgress
from client.admin.letters import LetterAdmin
from client.admin.replay import OffsetMove, ReplayAdmin
from client.admin.transactions import TransactionAdmin
from client.admin.users import UserAdmin
from client.errors import raises_client_errors
from client.lifecycle import used_at_home

__all__ = ["AdminClient", "BrokerEntry", "GroupProgress", "OffsetMove", "QueueProgress"]


@raises_client_errors
@used_at_home
class AdminClient(LetterAdmin, ReplayAdmin, ClusterAdmin, ConvertAdmin, TransactionAdmin, UserAdmin):
    """Asks and changes brokers and NameServers. Use as ``async with AdminClient(namesrv) as admin``."""
