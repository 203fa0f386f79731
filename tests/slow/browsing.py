"""A headless Chromium that is somebody's browser on a Superset: pages, and the requests they make."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
    TimeoutException,
    WebDriverException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE = 180  # seconds; a chart is drawn after its answer, on a machine that does other things
CLICKED_TOO_EARLY = (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
#: A request of the page's own origin, with its session and its token against forgery.
REQUEST = """
const [method, path, body, done] = arguments;
(async () => {
  const headers = {'Content-Type': 'application/json'};
  if (method !== 'GET') {
    const told = await fetch('/api/v1/security/csrf_token/');
    headers['X-CSRFToken'] = (await told.json()).result;
  }
  const answer = await fetch(path, {method, headers, body: body === null ? undefined : body});
  done([answer.status, await answer.text()]);
})().catch(error => done([0, String(error)]));
"""


class Browser:
    """One window, logged in or not.

    Parameters
    ----------
    address : str
        Where Superset answers, ``http://127.0.0.1:port``.
    folder : Path
        For the browser's profile and what it downloads.
    """

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--force-device-scale-factor=1",
            "--window-size=1400,1310",
            "--lang=en-GB",
            f"--user-data-dir={folder / 'profile'}",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
        service = webdriver.ChromeService(
            "/usr/bin/chromedriver", log_output=str(folder / "driver.log")
        )
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.set_script_timeout(PATIENCE)
        self.driver.set_page_load_timeout(PATIENCE)

    def close(self) -> None:
        self.driver.quit()

    def open(self, path: str) -> None:
        self.driver.get(self.address + path)

    def log_in(self, user: str, password: str) -> None:
        self.open("/login/")
        self.wait_for("#username, input[name=username]").send_keys(user)
        self.one("#password, input[name=password]").send_keys(password)
        self.click("button[type=submit], [data-test=login-button], input[type=submit]")
        self.wait(lambda: "/login" not in self.driver.current_url, "the login")

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and JSON of a request that the open page makes."""
        text = None if body is None else json.dumps(body)
        status, told = self.driver.execute_async_script(REQUEST, method, path, text)
        try:
            return status, json.loads(told)
        except ValueError:
            return status, told

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of a request that must succeed."""
        status, told = self.request(method, f"/api/v1/{path}", body)
        assert 200 <= status < 300, (method, path, status, told)
        return told

    # -- what is on the page ------------------------------------------------------------

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str = "body") -> str:
        """Return the text of the first element, as it is seen."""
        found = self.all(selector)
        return str(found[0].text) if found else ""

    def wait(self, condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
        try:
            return WebDriverWait(self.driver, patience, poll_frequency=0.3).until(
                lambda _: condition()
            )
        except TimeoutException:
            raise AssertionError(
                f"waited in vain for {what}; the page says:\n{self.text()}"
            ) from None

    def wait_for(self, selector: str) -> Any:
        return self.wait(lambda: next(iter(self.all(selector)), None), selector)

    def click(self, selector: str, containing: str = "") -> None:
        """Click on the first visible element that contains a text, as soon as that can be done."""

        def clicked() -> bool:
            for element in self.all(selector):
                try:
                    if containing in element.text and element.is_displayed():
                        element.click()
                        return True
                except CLICKED_TOO_EARLY:
                    pass
            return False

        self.wait(clicked, f"{selector} with {containing!r}")

    def toasts(self) -> list[str]:
        """Return what pops up to tell of an error."""
        return [e.text for e in self.all(".toast--danger, [data-test=toast-danger], .alert-danger")]

    # -- what was asked -----------------------------------------------------------------

    def traffic(self) -> Traffic:
        """Begin to collect the answers that the page gets from now on."""
        self.driver.get_log("performance")
        return Traffic(self)

    def screenshot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        time.sleep(1)  # transitions
        self.driver.save_screenshot(str(path))


@dataclass
class Traffic:
    """Path, status and JSON of the answers that a page got."""

    browser: Browser
    found: list[tuple[str, int, Any]] = field(default_factory=list)
    _begun: dict[str, tuple[str, int]] = field(default_factory=dict)

    def seen(self) -> list[tuple[str, int, Any]]:
        """Return all until now; while the page is open, which forgets them when it is left."""
        driver = self.browser.driver
        for entry in driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            request = message["params"].get("requestId")
            if message["method"] == "Network.responseReceived":
                answer = message["params"]["response"]
                path = answer["url"].removeprefix(self.browser.address)
                if path.startswith("/api/v1/") and "json" in answer["mimeType"]:
                    self._begun[request] = (path, answer["status"])
            elif message["method"] == "Network.loadingFinished" and request in self._begun:
                path, status = self._begun.pop(request)
                try:
                    told = driver.execute_cdp_cmd("Network.getResponseBody", {"requestId": request})
                except WebDriverException as error:
                    # an answer to the page before, which was left meanwhile
                    if "No resource with given identifier" in str(error):
                        continue
                    raise
                self.found.append((path, status, json.loads(told["body"])))
        return self.found
