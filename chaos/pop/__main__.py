"""``python -m chaos.pop KIND …``: one application of a POP run; see chaos/apps/app.py."""

import sys

from chaos.apps.app import App, Setting, live, log_to_stderr, read_setting
from chaos.apps.journal import AppJournal
from chaos.pop.consuming import Popping
from chaos.pop.plan import CONSUMER, PRODUCER
from chaos.pop.producing import CountedSender
from runtime.loop import run

KINDS: dict[str, type[App]] = {PRODUCER: CountedSender, CONSUMER: Popping}


async def _main(setting: Setting) -> int:
    return await live(KINDS[setting.kind](setting, AppJournal(setting.journal)))


if __name__ == "__main__":
    log_to_stderr()
    sys.exit(run(_main(read_setting(sys.argv[1:]))))
