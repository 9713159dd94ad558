"""How often a member stood, was elected, or led no more because it must not: by reasons of a fixed list."""

STOOD = ("nobody_led", "handed_over")
GAVE_WAY = ("disk", "clock", "other")
_KNOWN = {"nobody led": "nobody_led", "the leader handed over": "handed_over", "elected": "elected"}


def counts() -> dict[str, int]:
    """Return a table in which all reasons stand."""
    return dict.fromkeys((*STOOD, "elected", *GAVE_WAY), 0)


def reason_of(why: str) -> str:
    """Return the reason that stands for what is said to people: what no election begins with is why one gave way."""
    return _KNOWN.get(why) or next((word for word in GAVE_WAY if word in why), "other")
