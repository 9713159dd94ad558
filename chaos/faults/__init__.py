"""The faults that can be done to a cluster here, one small class each: fired, proved, healed, and verified healed.

* base: what a fault needs of a cluster (Site, Member, Links), what it tells (Effect), how long its waits are
* targets: members by role, looked up when a fault is fired
* running: kill, pause, rolling restart, starved of CPU, crashed clients
* freezer: processes that stand still, by cgroup or by signal
* links: partitions of every shape, slow, lossy and torn links
* net: partitions by the kernel, between network namespaces
* disk: slow, failing and full disks, power loss
* device: power loss and full disks of file systems of their own
* files: bit flips and cut tails in the log of a stopped member
* lost: a file of the log or all queues gone, and members that are killed while they bring them back
* rot: bits that flip in old files, of members that are down and of such that run
* whole: whether members have again what they had
* group: transfers of the lead and changes of membership under load
* clock: a wall clock that jumps, or steps days ahead
* survivable: which of them sends go on under
* composite: the schedules that need several of these in one order
"""
