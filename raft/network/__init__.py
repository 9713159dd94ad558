"""The way between members: sockets, frames, the handshake that proves both ends, and the driver that runs a node."""
