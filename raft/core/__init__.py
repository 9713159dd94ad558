"""The decisions of one member: elections, appends, commits, leases, membership, repair. Sans-I/O, in one thread.

node is the face; core holds what its parts share. pysyncobj is the one door to the library whose election, votes and
commit rule are used; hooks are what stands before and beside it.
"""
