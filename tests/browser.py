"""A page in headless Chromium, spoken to by its debugging pipe: https://chromedevtools.github.io/devtools-protocol/"""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """The path of a browser, or None."""
    names = [
        os.environ.get("MIRT_BROWSER"),
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
        "chrome",
    ]
    return next((shutil.which(name) for name in names if name and shutil.which(name)), None)


class Browser:
    def __init__(self, path):
        self.home = tempfile.TemporaryDirectory(prefix="mirt_browser.", ignore_cleanup_errors=True)
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs_in, theirs_out)]

        def place():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)
        self.process = subprocess.Popen(
            [
                path,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
                "--remote-debugging-pipe",
                "--user-data-dir=" + self.home.name,
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=place,
            env=dict(os.environ, HOME=self.home.name),
        )
        for fd in high + [theirs_in, theirs_out]:
            os.close(fd)
        self.buffer, self.number, self.events = b"", 0, []
        target = self.call("Target.createTarget", {"url": "about:blank"}, None)["targetId"]
        self.session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True}, None)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def read(self, until):
        """The next message; TimeoutError."""
        while b"\0" not in self.buffer:
            if not select.select([self.into], [], [], max(0, until - time.time()))[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.into, 1 << 16)
            if not more:
                raise EOFError("the browser ended")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, params=None, session="own"):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.time() + 60
        while True:
            answer = self.read(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def open(self, url, width, dark=False, height=900):
        """Loads a page; what it complained of and what it asked for beside itself."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        self.call(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
        )
        self.events = []
        self.call("Page.navigate", {"url": url})
        until = time.time() + 60
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.read(until))
        self.evaluate("new Promise(done => setTimeout(done, 150))")
        complaints = [
            json.dumps(e["params"])[:300]
            for e in self.events
            if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")
            or (e.get("method") == "Runtime.consoleAPICalled" and e["params"]["type"] in ("error", "warning", "assert"))
        ]
        asked = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return complaints, [u for u in asked if u != url and not u.startswith("data:")]

    def evaluate(self, expression):
        return self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})[
            "result"
        ].get("value")

    def picture(self, path):
        data = self.call(
            "Page.captureScreenshot",
            {
                "captureBeyondViewport": True,
                "clip": dict(
                    x=0,
                    y=0,
                    scale=1,
                    width=self.evaluate("document.documentElement.clientWidth"),
                    height=self.evaluate("document.documentElement.scrollHeight"),
                ),
            },
        )["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def close(self):
        try:
            self.call("Browser.close", session=None)
        except (OSError, EOFError, TimeoutError, RuntimeError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.home.cleanup()
