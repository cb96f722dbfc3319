"""A real headless Chromium, and the pages to look at.

Run with ``make test-browser``. Pictures are kept if ``RANKRLS_SCREENSHOTS`` names a directory.
"""

import base64
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.support.ui import WebDriverWait

from rankrls.datasets import make_ranking
from rankrls.report import write_report

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
PAGES = ("queries", "test", "rows", "kernel", "evil")
EVIL = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


def find(*names):
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.exit(f"{names[0]} is missing: run make test-browser, or install it", returncode=3)
    return found


class Browser:
    """The few things that the tests ask of Chromium."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, path, *, width=1100, height=900, dark=False, mobile=False):
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        scheme = "dark" if dark else "light"
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", media="", features=features)
        self.driver.get_log("browser")
        self.driver.get(Path(path).as_uri())

    def command(self, name, **options):
        return self.driver.execute_cdp_cmd(name, options)

    def pdf(self):
        """The page as a PDF. Right after loading, some 1 in 50 of any page fails in Chromium."""
        wait = WebDriverWait(self.driver, 20, ignored_exceptions=[WebDriverException])
        page = wait.until(lambda _: self.command("Page.printToPDF", preferCSSPageSize=True))
        return base64.b64decode(page["data"])

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def console(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def keep_picture(self, name):
        folder = os.environ.get("RANKRLS_SCREENSHOTS")
        if folder:
            picture = self.command("Page.captureScreenshot", captureBeyondViewport=True)
            Path(folder, f"{name}.png").write_bytes(base64.b64decode(picture["data"]))


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = find("chromium", "chromium-browser", "google-chrome")
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(find("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture
def browser(driver):
    yield Browser(driver)
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """Pages by name: with queries, of test data, of one ranking, of a kernel, of hostile names."""
    from rankrls import RankRLS

    folder = tmp_path_factory.mktemp("pages")
    X, y, qid = make_ranking(
        n_queries=120, n_docs=(1, 30), n_features=24, random_state=0, return_X_y_qid=True
    )
    X[:, 5], X[:, 7], X[:, 8] = 3.0, qid, X[:, 9]
    X[:, 3] *= 5000.0
    X[10] = X[11]
    names = ["bm25", "title match", "price", "clicks in the last seven days"]
    names += [f"feature {j}" for j in range(4, 24)]
    documents = [f"https://shop.example/category/item-{i:06d}?ref=search" for i in range(len(y))]
    ids = np.array([f"running shoes {q}" for q in qid])
    train = qid < 80
    title = "Shop search, week 46"
    paths = {
        name: folder / f"{name}.html" for name in ("queries", "test", "rows", "kernel", "evil")
    }
    write_report(
        paths["queries"],
        X,
        y,
        ids,
        feature_names=names,
        document_names=documents,
        title=title,
    )
    unseen = (X[~train], y[~train], ids[~train])
    write_report(paths["test"], X[train], y[train], ids[train], test=unseen, feature_names=names)
    rng = np.random.default_rng(0)
    rows = X[:300, 10:16]
    write_report(paths["rows"], rows, rows[:, 0] + rng.normal(size=300))
    few = qid < 30
    kernel = RankRLS(1.0, kernel="rbf", gamma=0.02)
    write_report(paths["kernel"], X[few, 10:], y[few], qid[few], estimator=kernel)
    write_report(
        paths["evil"],
        X[few],
        y[few],
        [f"{EVIL}{q}" for q in qid[few]],
        feature_names=[f"{EVIL}{j}</title></style></script>" for j in range(24)],
        document_names=[f"{EVIL}\x00\u202e{i}" for i in range(few.sum())],
        title=f"{EVIL}</title>",
    )
    return paths
