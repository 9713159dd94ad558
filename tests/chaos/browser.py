"""A headless Chromium that opens one page, tells what it complained about, and takes a picture of it.

python -m tests.chaos.browser report.html report.png [WIDTH] [dark]
"""

import asyncio
import base64
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_S = 30.0


def find_chromium() -> str | None:
    """Return the browser's path, None where none is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """A page over the DevTools protocol. `complaints`: console, log and exceptions; `requests`: addresses fetched."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._width = 0
        self._numbers = itertools.count(1)
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []
        self.requests: list[str] = []

    async def listen(self) -> None:
        """Take in answers and events until the browser ends."""
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                break
            found = message.json()
            if "id" in found:
                self._answers.pop(found["id"]).set_result(found)
            else:
                self._event(found["method"], found["params"])

    def _event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method in {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}:
            self.complaints.append(str(params))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call the browser; raises RuntimeError for what it refuses."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        found = await asyncio.wait_for(answer, START_S)
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']}")
        result: dict[str, Any] = found["result"]
        return result

    async def open(self, path: Path, width: int, *, dark: bool = False) -> None:
        """Open a file at a width of the screen, in pixels."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self._screen(width, 844)
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=theme)
        self._loaded.clear()
        await self.call("Page.navigate", url=path.resolve().as_uri())
        await asyncio.wait_for(self._loaded.wait(), START_S)

    async def _screen(self, width: int, height: int) -> None:
        self._width, small = width, width < 600
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if small else 1, "mobile": small}
        await self.call("Emulation.setDeviceMetricsOverride", **size)

    async def evaluate(self, expression: str) -> Any:
        """Return what an expression is worth in the page."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    async def picture(self, path: Path, top: int = 0, height: int | None = None) -> None:
        """Write a PNG of the whole page, or of `height` pixels from `top` on."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        # What lies outside of the window may not have been drawn yet.
        await self._screen(self._width, int(size["height"]))
        clip = {"x": 0, "y": top, "width": size["width"], "height": height or size["height"] - top, "scale": 1}
        found = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))


@asynccontextmanager
async def browser(binary: str) -> AsyncIterator[Page]:
    """Run a browser with a profile of its own, and end it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        arguments = [
            "--headless=new",
            "--remote-debugging-port=0",
            "--no-first-run",
            "--disable-gpu",
            "--hide-scrollbars",
        ]
        arguments += ["--disable-background-networking", "--disable-dev-shm-usage", f"--user-data-dir={profile}"]
        # Chromium refuses its sandbox to root; the page is our own file.
        arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
        nowhere = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            binary, *arguments, "about:blank", stdout=nowhere, stderr=asyncio.subprocess.PIPE, start_new_session=True
        )
        try:
            address = await asyncio.wait_for(_address(process), START_S)
            async with ClientSession() as session:
                base = f"http://{address.removeprefix('ws://').partition('/')[0]}"
                async with session.get(f"{base}/json/list") as answer:
                    target = next(one for one in await answer.json() if one["type"] == "page")
                async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = Page(socket)
                    listening = asyncio.create_task(page.listen())
                    yield page
                    await socket.close()
                    await listening
        finally:
            process.kill()
            await process.communicate()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = []
    async for line in process.stderr:
        said.append(line.decode(errors="replace"))
        if "DevTools listening on " in said[-1]:
            return said[-1].split("DevTools listening on ")[1].strip()
    raise RuntimeError("the browser ended: " + "".join(said[-5:]))


async def _shoot(source: Path, target: Path, width: int, dark: bool) -> None:
    binary = find_chromium()
    if binary is None:
        raise SystemExit("no Chromium is installed: `apt-get install chromium`")
    async with browser(binary) as page:
        await page.open(source, width, dark=dark)
        await page.picture(target)


if __name__ == "__main__":
    _, page_path, picture_path, *rest = sys.argv
    asyncio.run(_shoot(Path(page_path), Path(picture_path), int(rest[0]) if rest else 1200, "dark" in rest))
