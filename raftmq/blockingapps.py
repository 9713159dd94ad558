"""Applications of a fault run that use `raftmq.sync`: threads that send, and a consumer whose callback is a function.

``python -m raftmq.blockingapps KIND …``, with the arguments and orders of chaos/apps/app.py; they cannot be cancelled.
"""

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count

from chaos.apps.app import EXIT_FAILED, EXIT_ORPHAN, TICK_S, Setting, log_to_stderr, read_setting
from chaos.apps.consuming import place_of
from chaos.apps.ending import connections, threads_left
from chaos.apps.journal import AppJournal
from chaos.apps.names import GROUPS, PLAIN, WORKERS, is_refused, message_id
from chaos.apps.producing import CLOSE_S, TIMEOUT_S, fate_of
from client.errors import ClientError
from client.message import ConsumeFrom, ConsumeResult, Message
from raftmq.sync import Producer, PushConsumer
from remoting.message import MessageExt

THREADS = 2
PAUSE_S = 0.1
# Threads and sockets that were ended may need so long to be gone; the interpreter ends them in its own time.
GONE_S = 0.2


class Blocking:
    """What both kinds have in common: a client, a journal, and how long the process did not run in time."""

    start_s, close_s = 2.0, CLOSE_S

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.journal = AppJournal(setting.journal)
        self.rng = random.Random(f"{setting.seed}/{setting.name}")
        self.stop = threading.Event()
        self._stalled = 0.0
        self.client = self.make()

    def make(self) -> Producer | PushConsumer:
        """Return the client, not started."""
        raise NotImplementedError

    def work(self) -> None:
        """Use it until `stop`."""
        self.stop.wait()

    def watch(self) -> None:
        """Look from time to time how long this process did not run in time."""
        ticked = time.monotonic()
        while True:
            time.sleep(TICK_S)
            now = time.monotonic()
            self._stalled += max(0.0, now - ticked - 2 * TICK_S)
            ticked = now

    def timed(self, what: str, deadline: float, act: Callable[[], None]) -> None:
        """Do it, and write down how long it took and how it ended."""
        began, stalled, error = time.monotonic(), self._stalled, ""
        try:
            act()
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}"
            raise
        finally:
            took, lost = time.monotonic() - began, self._stalled - stalled
            self.journal.note("call", what=what, began=began, took=took, deadline=deadline, stalled=lost, error=error)

    def live(self) -> int:
        """Start, use and close the client; returns the exit code."""
        before, failure = set(connections()), ""
        try:
            self.timed("start", self.start_s, self.client.start)
            self.journal.note("started")
            try:
                self.work()
            finally:
                self.timed("close", self.close_s, self.client.close)
        except ClientError as error:
            failure = f"{type(error).__name__}: {error}"
        deadline = time.monotonic() + GONE_S
        while (threads_left() or set(connections()) - before) and time.monotonic() < deadline:
            time.sleep(TICK_S / 5)
        sockets, how = sorted(set(connections()) - before), "close" if self.stop.is_set() else "itself"
        self.journal.note("closed", how=how, tasks=[], connections=sockets, threads=threads_left(), error=failure)
        return EXIT_FAILED if failure else 0

    def obey(self) -> None:
        """Wait for the order to end."""
        while read := os.read(sys.stdin.fileno(), 4096):
            self.journal.note("order", what=read.split()[0].decode())
            self.stop.set()
        os._exit(EXIT_ORPHAN)


class Sender(Blocking):
    """Threads that send with one producer."""

    def make(self) -> Producer:
        """Return a producer whose sends have 3 s."""
        self._numbers = count(1)
        return Producer("apps_blocking", self.setting.namesrv, send_timeout=TIMEOUT_S)

    def work(self) -> None:
        """Send side by side."""
        threads = [threading.Thread(target=self._send, name=f"sender {number}") for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send(self) -> None:
        producer = self.client
        assert isinstance(producer, Producer), "make() made it"
        while not self.stop.wait(PAUSE_S):
            text = message_id(self.setting.name, next(self._numbers))
            began, stalled, error, result = time.monotonic(), self._stalled, None, None
            try:
                result = producer.send(Message(PLAIN, text.encode(), keys=text))
            except ClientError as raised:
                error = raised
            self.journal.note(
                "sent",
                ids=[text],
                topic=PLAIN,
                fate=fate_of(error, result),
                began=began,
                took=time.monotonic() - began,
                deadline=TIMEOUT_S,
                stalled=self._stalled - stalled,
                error=f"{type(error).__name__}: {error}" if error is not None else "",
            )


class BlockingWorker(Blocking):
    """A member of the workers' group whose callback is a plain function, run in threads."""

    start_s, close_s = 5.0, 12.0

    def make(self) -> PushConsumer:
        """Return the consumer."""
        self._numbers = count(1)
        self.journal.note("consumes", group=WORKERS, topic=GROUPS[WORKERS])
        consumer = PushConsumer(WORKERS, self.setting.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, concurrency=4)
        consumer.subscribe(GROUPS[WORKERS])
        consumer.on_message(self._consume)
        return consumer

    def _consume(self, messages: Sequence[MessageExt]) -> ConsumeResult:
        number = next(self._numbers)
        ids = [message.body.decode() for message in messages]
        again = [message.reconsume_times for message in messages]
        offsets = [message.queue_offset for message in messages]
        self.journal.note("got", n=number, queue=place_of(messages[0]), offsets=offsets, ids=ids, again=again)
        time.sleep(self.rng.uniform(0.0, 0.005))
        ok = not any(times == 0 and is_refused(one) for times, one in zip(again, ids, strict=True))
        self.journal.note("done", n=number, ok=ok)
        return ConsumeResult.SUCCESS if ok else ConsumeResult.RECONSUME_LATER


KINDS: dict[str, type[Blocking]] = {"blocking-send": Sender, "blocking-push": BlockingWorker}


def main() -> None:
    """Be one application."""
    log_to_stderr()
    setting = read_setting(sys.argv[1:])
    app = KINDS[setting.kind](setting)
    threading.Thread(target=app.watch, name="ticking", daemon=True).start()
    threading.Thread(target=app.obey, name="orders", daemon=True).start()
    sys.exit(app.live())


if __name__ == "__main__":
    main()
