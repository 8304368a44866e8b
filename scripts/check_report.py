"""Opens a report of `unibio reproduce` in headless Chromium and checks that a phone and a desktop show all of it.

    python scripts/check_report.py OUT [--screenshots FOLDER]

It checks, in a narrow and a wide window, in light and dark, that there is no error on the console, no request for
anything but the page, no image that is not drawn or has no text, nothing wider than the window, and no text smaller
than 11 pixels, also not because an image is shrunk. It talks to
Chromium through a pipe (Chrome DevTools Protocol) and needs no package.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = (390, 1200)
SCHEMES = ("light", "dark")
MEASURE = """JSON.stringify({
  images: document.images.length,
  broken: [...document.images].filter(image => !(image.naturalWidth > 0)).map(image => image.alt),
  unnamed: [...document.images].filter(image => !image.alt).length,
  content: document.documentElement.scrollWidth,
  window: document.documentElement.clientWidth,
  shrunk: [...document.images].filter(image => image.clientWidth < 0.92 * image.naturalWidth).map(image => image.alt),
  small: [...document.querySelectorAll("body *")].filter(
    part => [...part.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()) &&
      parseFloat(getComputedStyle(part).fontSize) < 11).map(part => part.textContent),
})"""


def browser() -> str | None:
    """The path of the first of BROWSERS that is installed."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


class Chromium:
    """A headless Chromium with one page, used as `with Chromium(path) as page`."""

    def __init__(self, path: str) -> None:
        self.profile = tempfile.mkdtemp(prefix="check_report.")
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        flags = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage",
                 "--no-first-run", "--no-sandbox", f"--user-data-dir={self.profile}"]  # fmt: skip
        # Chromium reads commands from descriptor 3 and answers on 4; a shell puts the pipes there.
        shell = ["sh", "-c", f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}', path, *flags]
        self.process = subprocess.Popen(shell, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.input, self.output = os.fdopen(ours_out, "wb", 0), os.fdopen(ours_in, "rb")
        self.number, self.session, self.waiting = 0, "", b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> "Chromium":
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()
        self.input.close()
        self.output.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Sends a command and returns its result. Events that arrive before it are added to `self.events`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": arguments}
        message |= {"sessionId": self.session} if self.session else {}
        self.input.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") != self.number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def open(self, url: str) -> list[dict[str, Any]]:
        """Loads a page and returns the events up to the one that says that it is loaded."""
        self.events = []
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())
        return self.events

    def evaluate(self, expression: str) -> Any:
        """Evaluates a JavaScript expression that gives JSON, and returns its value."""
        return json.loads(self.call("Runtime.evaluate", expression=expression)["result"]["value"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.waiting:
            chunk = os.read(self.output.fileno(), 1 << 20)
            if not chunk:
                raise RuntimeError("Chromium ended unexpectedly.")
            self.waiting += chunk
        first, _, self.waiting = self.waiting.partition(b"\0")
        return json.loads(first)


def faults(events: list[dict[str, Any]], url: str, page: dict[str, Any]) -> list[str]:
    """What is wrong with a loaded page, a sentence for each fault."""
    found = []
    for event in events:
        what, values = event["method"], event.get("params", {})
        if what == "Runtime.exceptionThrown" or (what == "Runtime.consoleAPICalled" and values["type"] == "error"):
            found.append(f"console: {values}")
        elif what == "Log.entryAdded" and values["entry"]["level"] == "error":
            found.append(f"console: {values['entry']['text']}")
        elif what == "Network.requestWillBeSent" and not values["request"]["url"].startswith((url, "data:")):
            found.append(f"the page requests {values['request']['url']}")
    found += [f"image not drawn: {alt}" for alt in page["broken"]]
    found += [f"image shrunk, so that its text is too small: {alt}" for alt in page["shrunk"]]
    found += [f"text smaller than 11 pixels: {text}" for text in page["small"]]
    if page["unnamed"]:
        found.append(f"{page['unnamed']} images without a text for those who cannot see them")
    if page["content"] > page["window"]:
        found.append(f"{page['content']} pixels wide in a window of {page['window']}")
    return found


def check(report: Path, path: str, screenshots: Path | None) -> list[str]:
    """The faults in every width, light and dark; screenshots into the folder, if one is given."""
    url, found = report.resolve().as_uri(), []
    with Chromium(path) as page:
        for width in WIDTHS:
            for scheme in SCHEMES:
                page.call(
                    "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=False
                )
                page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                events = page.open(url)
                measured = page.evaluate(MEASURE)
                found += [f"{width} px, {scheme}: {fault}" for fault in faults(events, url, measured)]
                print(f"{width} px, {scheme}: {measured['images']} images, {measured['content']} px wide")
                if screenshots:
                    whole = page.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
                    (screenshots / f"{width}-{scheme}.png").write_bytes(base64.b64decode(whole))
        if screenshots:
            paper = page.call("Page.printToPDF", preferCSSPageSize=True)["data"]
            (screenshots / "print.pdf").write_bytes(base64.b64decode(paper))
    return found


def main() -> None:
    """Exit code 0 if all is well, 1 if not, 2 without report or Chromium."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder with index.html")
    parser.add_argument("--screenshots", type=Path, help="an existing folder for PNG files and the printed page")
    given = parser.parse_args()
    report, path = given.out / "index.html", browser()
    if not report.is_file() or path is None:
        print(f"no {report}" if path else f"no Chromium on the path ({', '.join(BROWSERS)})", file=sys.stderr)
        sys.exit(2)
    found = check(report, path, given.screenshots)
    print("\n".join(found) or "all is well")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
