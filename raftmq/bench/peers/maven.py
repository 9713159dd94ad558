"""The real RocketMQ's jars, brought by Maven, or the reason why there are none here."""

import shutil
import subprocess
from pathlib import Path

VERSION = "5.5.0"
# Maven's own cache makes it two seconds from the second time on.
RESOLVE_TIMEOUT_S = 240
BROKER, NAMESRV, TOOLS = "rocketmq-broker", "rocketmq-namesrv", "rocketmq-tools"
DEPENDENCY = (
    "<dependency><groupId>org.apache.rocketmq</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version></dependency>"
)
POM = (
    "<project><modelVersion>4.0.0</modelVersion><groupId>raftmq</groupId><artifactId>interop</artifactId>"
    "<version>1</version><dependencies>{dependencies}</dependencies></project>"
)


class NoJava(Exception):
    """RocketMQ cannot be run on this machine; the text says why."""


def class_path(folder: Path, *artifacts: str, timeout_s: float = RESOLVE_TIMEOUT_S) -> str:
    """Have Maven resolve parts of RocketMQ (its broker) into its own cache; returns Java's class path.

    `folder` takes Maven's own files. Raises NoJava.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NoJava(f"{program} is not on PATH")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [DEPENDENCY.format(artifact=artifact, version=VERSION) for artifact in artifacts or (BROKER,)]
    (folder / "pom.xml").write_text(POM.format(dependencies="".join(wanted)))
    found = folder / "class-path"
    # Without the network first: what is there already needs no look at the registry.
    for mode in (["-o"], []):
        command = ["mvn", "-q", "-B", *mode, "dependency:build-classpath", f"-Dmdep.outputFile={found}"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            raise NoJava(f"Maven did not bring RocketMQ {VERSION} within {timeout_s:g} s") from None
        if done.returncode == 0:
            return found.read_text()
    raise NoJava(f"Maven cannot resolve RocketMQ {VERSION}: {(done.stdout + done.stderr).strip()[-300:]}")
