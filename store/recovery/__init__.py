"""A start: what the folder holds after a stop, a kill or a power loss, and reading a folder offline (inspect)."""
