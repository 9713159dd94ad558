"""Snapshot install: a member that is behind what the others keep gets their files, and begins anew with them (R13)."""
