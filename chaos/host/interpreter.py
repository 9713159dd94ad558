"""How a Python process of ours is started: on this interpreter, whatever lies in the current folder."""

import sys

# -P: a broker.py, or a random.py, beside the user's program is his own business.
MODULE = (sys.executable, "-P", "-m")
"""A module's name and its arguments follow."""
