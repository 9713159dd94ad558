"""Administration of a cluster: what the daily commands need. One class, by theme in `admin_*`.

Every method raises remoting.errors.InvokeError (ResponseError for a refusal) and client.errors.RouteError when no
NameServer answers or a name is not known. Addresses are "host:port", times ms since the epoch.
"""

from client.admin_base import BrokerEntry
from client.admin_cluster import ClusterAdmin
from client.admin_convert import ConvertAdmin
from client.admin_groups import GroupAdmin, GroupProgress, QueueProgress
from client.admin_messages import MessageAdmin
from client.admin_topics import TopicAdmin

__all__ = ["AdminClient", "BrokerEntry", "GroupProgress", "QueueProgress"]


class AdminClient(TopicAdmin, GroupAdmin, MessageAdmin, ClusterAdmin, ConvertAdmin):
    """Asks and changes brokers and NameServers. Use as ``async with AdminClient(namesrv) as admin``."""
