"""What all tests share: how many examples hypothesis tries.

HYPOTHESIS_PROFILE chooses: `default` (the same 60 examples on every run), `slow` (1,000 random ones per test),
`fuzz` (10,000).
"""

import os

from hypothesis import HealthCheck, settings

# Properties of the store write files: how long one example takes says nothing about whether it is right.
_UNTIMED = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("default", max_examples=60, derandomize=True, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("slow", max_examples=1_000, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("fuzz", max_examples=10_000, deadline=None, suppress_health_check=_UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
