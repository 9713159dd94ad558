"""What the documents hold that a reader would type: fenced blocks, the commands in them, and code in the text."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "ARCHITECTURE.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
WORKFLOWS = tuple(sorted(f"docs/workflows/{path.name}" for path in (ROOT / "docs" / "workflows").iterdir()))
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_STEP = re.compile(r"^ *(?:- )?run: (.+)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block. `line` is the fence's, for people; nothing goes by it."""

    document: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


class Typed(NamedTuple):
    """A command line, as it stands in a document, without its comment."""

    where: str
    text: str


def blocks(*documents: str) -> list[Block]:
    """Return the fenced blocks of documents, in their order."""
    found = []
    for document in documents:
        text = (ROOT / document).read_text(encoding="utf-8")
        assert text.count("\n```") % 2 == 0, f"{document}: a fence that is not closed, or is indented"
        found += [
            Block(document, text.count("\n", 0, fence.start()) + 1, fence[1].strip(), fence[2])
            for fence in _FENCE.finditer(text)
        ]
    return found


def is_shell(block: Block) -> bool:
    """Tell whether a block is for a terminal; one without a language is, unless the table says that it is a picture."""
    return block.language in {"", "sh", "console", "bash"}


def commands(text: str) -> list[str]:
    """Return the command lines of a shell block: without comments, prompts and empty lines, broken lines joined."""
    joined = re.sub(r"\\\n\s*", "", text)
    found = []
    for line in joined.splitlines():
        words = re.sub(r"(?:^|\s+)#.*$", "", line.removeprefix("$ ")).strip()
        if words:
            found.append(words)
    return found


def paragraphs(text: str) -> list[list[str]]:
    """Return the commands of each paragraph of a block: terminals of their own, where the text says so."""
    return [found for part in text.split("\n\n") if (found := commands(part))]


def steps(workflow: str) -> list[str]:
    """Return what the steps of a workflow run."""
    return _STEP.findall((ROOT / workflow).read_text(encoding="utf-8"))


def spans(document: str) -> Iterator[Typed]:
    """Yield the spans of code in a document's text, one line each, escapes of tables undone."""
    text = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), (ROOT / document).read_text(encoding="utf-8"))
    for span in _SPAN.finditer(text):
        where = f"{document}:{text.count(chr(10), 0, span.start()) + 1}"
        yield Typed(where, " ".join(span[1].replace("\\|", "|").split()))


def words_of(command: str) -> list[str]:
    """Split a command line as a shell does."""
    return shlex.split(command)
