"""``python -m chaos.apps KIND …``: one application; see chaos/apps/app.py."""

import sys

from chaos.apps.app import App, Setting, live, log_to_stderr, read_setting
from chaos.apps.consuming import CONSUMERS
from chaos.apps.journal import AppJournal
from chaos.apps.producing import PRODUCERS
from runtime.loop import run

KINDS: dict[str, type[App]] = {**PRODUCERS, **CONSUMERS}


async def _main(setting: Setting) -> int:
    return await live(KINDS[setting.kind](setting, AppJournal(setting.journal)))


if __name__ == "__main__":
    log_to_stderr()
    sys.exit(run(_main(read_setting(sys.argv[1:]))))
