"""No document names a command, an option, a target or a key that is not there; no row of the table is left over."""

import re
from dataclasses import fields

import pytest

from broker.settings.config import BrokerConfig
from broker.settings.foreign_keys import KEYS as BROKER_KEYS
from namesrv.config import NamesrvConfig
from namesrv.foreign_keys import KEYS as NAMESRV_KEYS
from runtime.config import key_of
from store.config import StoreConfig
from tests.docs.commandline import wrong_with
from tests.docs.documents import (
    DOCUMENTS,
    ROOT,
    WORKFLOWS,
    Typed,
    blocks,
    commands,
    is_shell,
    spans,
    steps,
    words_of,
)
from tests.docs.treatments import COMMANDS, PICTURES, WORDS, is_picture

PROGRAMS = ("raftmq", "make", "python", "pip", "bash", "spark-submit")
BLOCKS = [block for block in blocks(*DOCUMENTS) if not is_picture(block)]
TYPED = [
    *(Typed(str(block), command) for block in BLOCKS if is_shell(block) for command in commands(block.text)),
    *(
        span
        for document in (*DOCUMENTS, "CHANGELOG.md")
        for span in spans(document)
        if span.text.split()[0] in PROGRAMS
    ),
    *(Typed(workflow, step) for workflow in WORKFLOWS for step in steps(workflow)),
]
KEYS = {key_of(field) for config in (BrokerConfig, StoreConfig, NamesrvConfig) for field in fields(config)}
# RocketMQ's others, which are known by name.
OTHER_KEYS = {*BROKER_KEYS, *NAMESRV_KEYS}
# Documents with tests of their own; tests/docs/test_docs_others.py runs all others.
RUN_BY = {
    "README.md": ("tests/docs/test_docs_readme.py",),
    "docs/chaos.md": ("tests/docs/test_docs_chaos.py",),
    "docs/spark.md": ("tests/docs/test_docs_chaos.py", "tests/spark/test_docs_spark.py"),
}


@pytest.mark.parametrize("typed", dict.fromkeys(TYPED), ids=lambda typed: typed.text)
def test_a_command_is_there_with_its_options(typed: Typed) -> None:
    if typed.text.split()[0] != "cat":  # prints what the command before it wrote
        # A sentence that leaves something out says so by three dots, a word of its own.
        words = [word for word in words_of(typed.text) if word != "…"]
        assert wrong_with(words) == "", typed.where


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("raftmq topic make orders", "topic has no make"),
        ("raftmq send orders --fast", "send has no option --fast"),
        ("raftmq cluster promote a b", "promote takes 1 arguments, not 2"),
        ("raftmq topic list|creat", "topic has no creat"),
        ("make everything", "make has no target everything"),
        ("make torture HOURS=1", "make has no variable HOURS"),
        ('pip install "raftmq[more]"', "there is no extra more"),
        ("python -m tests.chaos.selftest --fast", "it does not take --fast"),
        ("spark-submit submit.py audit orders --quick", "audit has no option --quick"),
        ("curl http://127.0.0.1", "nobody knows how to check curl"),
    ],
)
def test_a_wrong_command_line_is_found(command: str, why: str) -> None:
    assert wrong_with(words_of(command)) == why


@pytest.mark.parametrize("document", DOCUMENTS)
def test_keys_in_tables_and_spans_are_known(document: str) -> None:
    text = (ROOT / document).read_text()
    tables = re.findall(r"^## Keys of broker\.conf\n(.*?)^[^|\n]", text, re.MULTILINE | re.DOTALL)
    given = {
        key for table in tables for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for key in row.split(", ")
    }
    set_to = {
        span.text.partition("=")[0] for span in spans(document) if re.fullmatch(r"[a-z][A-Za-z0-9]+=\S+", span.text)
    }
    assert {key.strip("`") for key in given} <= KEYS
    assert {key for key in set_to if key not in OTHER_WORDS} <= KEYS | OTHER_KEYS


# What stands with an equals sign in a document, and is no key of a configuration file.
OTHER_WORDS = {"expect", "force", "promises"}


def test_every_row_of_the_table_is_used() -> None:
    lines = {command for block in BLOCKS if is_shell(block) for command in commands(block.text)}
    assert COMMANDS.keys() <= lines
    assert len([block for block in blocks(*DOCUMENTS) if is_picture(block)]) == len(PICTURES)
    for document, words in WORDS.items():
        text = "".join(block.text for block in BLOCKS if block.document == document)
        assert [old for old in words if old not in text] == []


def test_every_block_is_run_by_one_of_the_tests() -> None:
    for document, tests in RUN_BY.items():
        assert all(f'blocks("{document}")' in (ROOT / test).read_text() for test in tests)


def test_each_row_of_features_names_a_test_that_is_there_or_says_that_it_is_missing() -> None:
    rows = [
        line.strip("| \n").split(" | ")
        for line in (ROOT / "docs" / "features.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| Feature |")
    ]
    assert len(rows) > 40
    for feature, _theirs, _ours, shown in rows:
        named = re.findall(r"`(tests/[^`]+)`", shown)
        assert named or shown == "missing", feature
        assert [path for path in named if not (ROOT / path).is_file()] == [], feature
