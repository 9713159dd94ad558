"""A cluster that can be broken: its members, the links between them, their disks and networks."""
