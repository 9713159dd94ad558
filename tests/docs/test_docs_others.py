"""The blocks of every document that has no test of its own: each is run as it stands, beside a cluster."""

from collections.abc import Iterator

import pytest

from chaos.host.local import LocalCluster
from tests.docs.documents import DOCUMENTS, Block, blocks, is_shell
from tests.docs.terminal import Terminal
from tests.docs.test_docs_words import RUN_BY
from tests.docs.treatments import is_picture

OTHERS = [
    block for block in blocks(*(document for document in DOCUMENTS if document not in RUN_BY)) if not is_picture(block)
]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("documents")
    with LocalCluster(folder / "cluster", nodes=3) as cluster:
        yield Terminal(folder / "terminal", cluster.address)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("block", OTHERS, ids=str)
def test_a_block_runs(block: Block, terminal: Terminal) -> None:
    if is_shell(block):
        terminal.type_all(block.text)
    elif block.language == "python":
        terminal.run("python", str(terminal.program(block.document, block.text, f"line{block.line}.py")))
    elif block.language == "properties":
        path = terminal.program(block.document, block.text, f"line{block.line}.conf")
        assert "no effect" not in terminal.run("bash", "-c", f"raftmq broker -c {path} --print-config 2>&1")
    else:
        pytest.fail(f"nobody knows how to run {block.language!r}: say it in tests/docs/")
