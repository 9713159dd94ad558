"""The file for spark-submit: `spark-submit … raftmq/submit.py audit TOPIC --namesrv …`, as `raftmq pipeline` here.

The session is the one that spark-submit made; RaftMQ must be installed in the Python of driver and executors.
"""

from raftmq.cli.pipeline import app

if __name__ == "__main__":
    app(prog_name="raftmq pipeline")
