"""Markup that cannot be broken by what it shows: every text is escaped where it is put in, unless it is Html."""

from html import escape


class Html(str):
    """Markup; made by `tag` and `join` alone."""

    __slots__ = ()


def printable(text: object) -> str:
    r"""Return a text whose control, direction-changing and unpaired characters are written as \x1b, \u202e, \udc80."""
    shown = str(text)
    if shown.isascii() and shown.isprintable():
        return shown
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in shown)


def tag(name: str, *children: object, **attributes: object) -> Html:
    """Return an element. `class_` is class, `data_label` data-label; None and False leave an attribute out."""
    written = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = key.rstrip("_").replace("_", "-")
        written.append(shown if value is True else f'{shown}="{_safe(value)}"')
    opening = " ".join(written)
    return Html(f"<{opening}>{join(*children)}</{name}>")


def join(*children: object) -> Html:
    """Return the children one after another; what is no Html is escaped, None is nothing."""
    return Html("".join(_safe(child) for child in children if child is not None))


def _safe(value: object) -> str:
    return value if isinstance(value, Html) else escape(printable(value), quote=True)
