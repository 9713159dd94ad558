"""How many descriptors this process may have, raised to what the system allows: each connection takes one."""

import resource

# Kept for what is no connection of a client: files of the store, the links of a group, HTTP.
RESERVED = 1024


def connections_possible(wanted: int) -> int:
    """Raise the soft limit of open files as far as `wanted` connections need it; return how many it has room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if raised > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    return min(wanted, raised - min(RESERVED, raised // 2))
