"""The official Java client filters by SQL92: push, lite pull, and what it is told when a broker refuses."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster

pytestmark = pytest.mark.long  # two Java processes a test
# Arguments: NameServer, topic, kind, expression, how many messages to send, how many to wait for. Prints the bodies
# that came, or "refused" with the code.
PROGRAM = """
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;

public class SqlClient {
    public static void main(String[] args) throws Exception {
        String namesrv = args[0], topic = args[1], kind = args[2], expression = args[3];
        int send = Integer.parseInt(args[4]), wanted = Integer.parseInt(args[5]);
        DefaultMQProducer producer = new DefaultMQProducer("java_producer");
        producer.setNamesrvAddr(namesrv);
        producer.start();
        Set<String> got = ConcurrentHashMap.newKeySet();
        Runnable sends = () -> {
            try {
                for (int n = 0; n < send; n++) {
                    Message message = new Message(topic, ("m" + n).getBytes());
                    message.putUserProperty("price", String.valueOf(n));
                    message.putUserProperty("region", n % 2 == 0 ? "eu" : "us");
                    producer.send(message);
                }
            } catch (Exception failed) {
                throw new RuntimeException(failed);
            }
        };
        sends.run();
        long until = System.currentTimeMillis() + 40_000;
        try {
            if (kind.equals("push")) {
                DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java_" + topic + "_push");
                consumer.setNamesrvAddr(namesrv);
                consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
                consumer.subscribe(topic, MessageSelector.bySql(expression));
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    for (MessageExt each : messages) {
                        got.add(new String(each.getBody()) + "#" + each.getMsgId());
                    }
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
                consumer.start();
                while (got.size() < wanted && System.currentTimeMillis() < until) {
                    Thread.sleep(20);
                }
                // Its pulls are parked now.
                sends.run();
                while (got.size() < 2 * wanted && System.currentTimeMillis() < until) {
                    Thread.sleep(20);
                }
                consumer.shutdown();
            } else {
                DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("java_" + topic + "_lite");
                consumer.setNamesrvAddr(namesrv);
                consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
                consumer.subscribe(topic, MessageSelector.bySql(expression));
                consumer.start();
                while (got.size() < wanted && System.currentTimeMillis() < until) {
                    for (MessageExt each : consumer.poll(500)) {
                        got.add(new String(each.getBody()) + "#" + each.getMsgId());
                    }
                }
                consumer.shutdown();
            }
            System.out.println("got " + String.join(" ", new TreeSet<>(got)));
        } catch (MQClientException refused) {
            System.out.println("refused " + refused.getResponseCode() + " " + refused.getErrorMessage());
        }
        producer.shutdown();
        System.exit(0);
    }
}
"""
SENT = 20
SQL = "price >= 10 AND region = 'eu'"
WANTED = [f"m{number}" for number in range(10, SENT, 2)]


@pytest.fixture(scope="module", params=[1, 3], ids=["single", "raft"])
def filtering(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("java-sql")
    with LocalCluster(folder, nodes=request.param, broker_settings={"enablePropertyFilter": True}) as running:
        yield running


def client(jars: str, folder: Path, *arguments: object) -> tuple[str, str]:
    """Run the program; returns the first word of its answer, and the rest."""
    if shutil.which("javac") is None:
        pytest.skip("a JDK is needed, and there is none")
    source = folder / "SqlClient.java"
    source.write_text(PROGRAM)
    command = ["java", f"-Duser.home={folder}", "-cp", jars, str(source), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    answers = [line for line in done.stdout.splitlines() if line.startswith(("got", "refused"))]
    assert len(answers) == 1, done.stdout[-2000:] + done.stderr[-2000:]
    kind, _, rest = answers[0].partition(" ")
    return kind, rest


@pytest.mark.parametrize("kind", ["push", "lite"])
def test_only_what_the_filter_takes_comes(filtering: LocalCluster, jars: str, tmp_path: Path, kind: str) -> None:
    said, rest = client(jars, tmp_path, filtering.address, f"sql_{kind}", kind, SQL, SENT, len(WANTED))
    rounds = 2 if kind == "push" else 1
    assert (said, sorted(each.partition("#")[0] for each in rest.split())) == ("got", sorted(WANTED * rounds))


def test_a_filter_that_cannot_be_read(filtering: LocalCluster, jars: str, tmp_path: Path) -> None:
    said, rest = client(jars, tmp_path, filtering.address, "sql_bad", "push", "a > > 3", 1, 1)
    assert said == "refused"
    assert rest.startswith("23 ")
    assert "line 1, column 5" in rest


def test_a_broker_without_filters(jars: str, tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "off") as running:
        said, rest = client(jars, tmp_path, running.address, "sql_off", "push", "a > 3", 1, 1)
    assert said == "refused"
    assert rest.startswith("1 ")
    assert "does not support consumer to filter message by SQL92" in rest
