"""SQL92 filters beside the real RocketMQ's: what it refuses, and which messages it delivers, expression by expression.

RAFTMQ_INTEROP_FILTERS says how many random expressions (2,000 otherwise), each over five messages.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from broker.filters.sql import SqlFilter
from broker.filters.tokens import SqlError
from remoting.properties import encode_properties
from tests.properties.sql_twin import Maker, delivered
from tests.unit.test_broker_sql import FALSE, MESSAGE, REFUSED, TRUE

EXPRESSIONS = int(os.environ.get("RAFTMQ_INTEROP_FILTERS", "2000"))
MESSAGES = 5
# Reads lines of hexadecimal numbers: an expression, and the properties of messages. Answers a line each: R when the
# expression is refused, else for each message T when it is delivered and F when it is not.
PROGRAM = """
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

public class Filters {
    static String text(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split(" ", -1);
            Expression made = null;
            try {
                made = FilterFactory.INSTANCE.get("SQL92").compile(text(fields[0]));
            } catch (Throwable refused) {
                out.append("R");
            }
            for (int i = 1; made != null && i < fields.length; i++) {
                Object answer = null;
                try {
                    Map<String, String> properties = MessageDecoder.string2messageProperties(text(fields[i]));
                    answer = made.evaluate(new MessageEvaluationContext(properties));
                } catch (Throwable broken) {
                    answer = null;
                }
                out.append(Boolean.TRUE.equals(answer) ? "T" : "F");
            }
            out.append("\\n");
        }
        System.out.print(out);
    }
}
"""


def rocketmqs(jars: str, folder: Path, asked: Iterable[tuple[str, list[bytes]]]) -> list[str]:
    """Return what RocketMQ says of each expression and its messages."""
    if shutil.which("javac") is None:
        pytest.skip("a JDK is needed, and there is none")
    (folder / "Filters.java").write_text(PROGRAM)
    lines = [" ".join([text.encode().hex(), *(each.hex() for each in messages)]) for text, messages in asked]
    done = subprocess.run(
        ["java", "-cp", jars, str(folder / "Filters.java")],
        input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines), done.stderr
    return answers


def ours(text: str, messages: list[bytes]) -> str:
    try:
        made = SqlFilter(text)
    except SqlError:
        return "R"
    return "".join("T" if made.matches(each) else "F" for each in messages)


def test_random_expressions(jars: str, tmp_path: Path) -> None:
    asked, twins = [], []
    for seed in range(EXPRESSIONS):
        maker = Maker(seed)
        text, meaning = maker.expression()
        messages = [maker.message() for _ in range(MESSAGES)]
        asked.append((text, [encode_properties(each) for each in messages]))
        twins.append("R" if meaning is None else "".join("FT"[delivered(meaning, each)] for each in messages))
    theirs = rocketmqs(jars, tmp_path, asked)
    wrong = [
        (text, messages, answer, ours(text, messages), twin)
        for (text, messages), answer, twin in zip(asked, theirs, twins, strict=True)
        if not answer == twin == ours(text, messages)
    ]
    assert wrong == []
    assert {"R", "F", "T"} <= set("".join(theirs))


def test_the_cases_of_the_unit_tests(jars: str, tmp_path: Path) -> None:
    message = [encode_properties(MESSAGE)]
    cases = [*TRUE, *FALSE]
    theirs = rocketmqs(jars, tmp_path, [(text, message) for text in cases])
    assert [text for text, answer in zip(cases, theirs, strict=True) if answer != ours(text, message)] == []
    assert theirs == ["T"] * len(TRUE) + ["F"] * len(FALSE)


def test_what_is_refused(jars: str, tmp_path: Path) -> None:
    """All but what stands behind an expression, which is passed over there, and what is beyond our bounds."""
    bounds = ("in a row", "more than 50")
    behind = {"a = 5)", "a = 5 b = 6", "a LIKE 'x'", "a = 05"}
    theirs = rocketmqs(jars, tmp_path, [(text, [b""]) for text, _ in REFUSED])
    taken = {text: why for (text, why), answer in zip(REFUSED, theirs, strict=True) if answer != "R"}
    assert {text for text, why in taken.items() if not any(bound in why for bound in bounds)} == behind
    assert len(taken) > len(behind)


def test_what_differs_on_purpose(jars: str, tmp_path: Path) -> None:
    message = [encode_properties({"a": "1"})]
    cases = {
        # It stops reading where the expression ends.
        "a = 1 LIKE 'x'": "T", "a = 1 b = 2": "T", "a = 1 )": "T", "a = 01": "F",
        # Beyond our bounds.
        " OR ".join(["a = 1"] * 600): "T", "(" * 60 + "a = 1" + ")" * 60: "T", "a = 1" + " = TRUE" * 5: "T",
    }  # fmt: skip
    assert rocketmqs(jars, tmp_path, [(text, message) for text in cases]) == list(cases.values())
    assert [ours(text, message) for text in cases] == ["R"] * len(cases)
