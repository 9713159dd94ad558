"""The one table of what the tests do otherwise than a document says, each with its reason.

Whatever does not stand here is run as it stands in the document. Whatever stands here must stand in a document too:
`test_docs_words.py` looks.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tests.docs.documents import Block

# Where the documents have a cluster; tests have theirs elsewhere when somebody has these ports.
ADDRESS = "127.0.0.1:9876"
SECONDS = "5"


class Instead(NamedTuple):
    """Another command line in place of the document's."""

    run: str
    why: str


class NotRun(NamedTuple):
    """A command that is only looked at: program, subcommands, options and targets must be there."""

    why: str


COMMANDS: Mapping[str, Instead | NotRun] = {
    # README.md
    "make demo": Instead(
        "make -s -C {root} -o .venv/.ready demo", "it takes the folder of the project, where .venv is set up already"
    ),
    # docs/chaos.md
    'pip install ".[chaos]"': NotRun("it would install over the tests' own packages"),
    "raftmq chaos run smoke": NotRun("the same suite is run under In a CI, shortened"),
    "raftmq chaos run --suite full --budget 30m": NotRun(
        "half an hour; each scenario is met by tests/chaos or by hand"
    ),
    "raftmq chaos run smoke-kill --seed 1847 --schedule schedule.json": Instead(
        f"raftmq chaos run smoke-kill --seed 1847 --schedule schedule.json --seconds {SECONDS} --keep",
        "a shorter load, whose stores the next commands and docs/spark.md's need",
    ),
    "raftmq chaos recheck .": Instead(
        "cd chaos-runs/smoke-kill-1847 && raftmq chaos recheck .", "there is one run: that of the command before"
    ),
    "raftmq chaos report .": Instead(
        "cd chaos-runs/smoke-kill-1847 && raftmq chaos report .", "there is one run: that of the command before"
    ),
    'raftmq chaos run smoke --seed "$BUILD_NUMBER" --dir chaos-runs': Instead(
        f'raftmq chaos run smoke --seed "$BUILD_NUMBER" --dir chaos-runs --seconds {SECONDS}', "shorter loads"
    ),
    # docs/mutation.md
    "make chaos-self": NotRun("20 minutes; tests/chaos/test_chaos_planted.py runs a part of it"),
    "python -m tests.chaos.selftest --only no-lease": NotRun("two minutes; test_chaos_planted.py runs such trials"),
    "python -m tests.chaos.selftest --seed 7 --out DIR --runs DIR": NotRun("20 minutes"),
    # docs/spark.md
    "spark-submit --master yarn --deploy-mode cluster --archives raftmq.tar.gz#env"
    " --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./env/bin/python"
    " --conf spark.executorEnv.PYSPARK_PYTHON=./env/bin/python"
    " submit.py audit orders --namesrv 'ns1:9876;ns2:9876' --json": NotRun("it takes a cluster with YARN"),
    "spark-submit --master k8s://https://api.example:6443 --deploy-mode cluster"
    " --conf spark.kubernetes.container.image=registry.example/raftmq-spark:1"
    " local:///opt/raftmq/submit.py archive orders s3a://archive/orders --namesrv ns1:9876": NotRun(
        "it takes Kubernetes"
    ),
}
# Words of programs that are put in the place of others.
WORDS: Mapping[str, Mapping[str, str]] = {
    "docs/chaos.md": {
        "seconds=30": f"seconds={SECONDS}",
        "5_000": "500",
        'chaos_run(workloads=(Orders, "groups"), faults=("kill-leader",))': (
            f'chaos_run(workloads=(Orders, "groups"), faults=("kill-leader",), seconds={SECONDS})'
        ),
    },
    "docs/spark.md": {'checkpointLocation="…"': 'checkpointLocation="{folder}/checkpoint"'},
}
# Blocks that nobody types, by how they begin.
PICTURES: Mapping[str, str] = {
    "floor 5   raftmq/": "the rooms; import-linter has them in pyproject.toml",
    "broker/    main | server": "the rooms inside the packages; so has it them",
    "client/produce → client/api": "the ways of requests",
}


def is_picture(block: Block) -> bool:
    """Tell whether a block is only looked at."""
    return block.text.startswith(tuple(PICTURES))
