"""The report in Chromium: it opens, sorts, searches, and can be read by everybody."""

import json

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.browser

NAMES = ("queries", "test", "rows", "kernel", "evil")

# Contrast of every visible text with what is painted behind it (WCAG 2.2, 1.4.3).
CONTRAST = """
const parse = (text) => {
  const c = text.match(/[\\d.]+/g).map(Number);
  return { rgb: c.slice(0, 3), a: c.length > 3 ? c[3] : 1 };
};
const light = (rgb) => {
  const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = rgb.map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.a === 1) return c.rgb;
    if (c.a > 0) throw new Error("half transparent background");
  }
  return [255, 255, 255];
};
const bad = [];
let seen = 0;
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, element = node.parentElement;
  if (!node.textContent.trim() || element.closest("script, style, title")) continue;
  if (!element.checkVisibility() || element.getClientRects().length === 0) continue;
  const style = getComputedStyle(element);
  const ink = parse(element.closest("svg") ? style.fill : style.color).rgb;
  const [a, b] = [light(ink), light(behind(element))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  const large = parseFloat(style.fontSize) >= 24;
  seen += 1;
  if (ratio < (large ? 3 : 4.5)) bad.push([ratio.toFixed(2), node.textContent.trim().slice(0, 40)]);
}
return { seen, bad };
"""

# Elements that stick out to the right, but for those inside a box that scrolls.
OVERFLOW = """
const wide = document.documentElement.clientWidth, out = [];
for (const e of document.querySelectorAll("body *")) {
  if (e.closest("svg") && e.tagName !== "svg") continue;
  if (e.closest(".skip") || !e.checkVisibility()) continue;
  const r = e.getBoundingClientRect();
  if (r.width > 0 && (r.right > wide + 1 || r.left < -1)) out.push(e.tagName + "." + e.className);
}
return { out, page: document.scrollingElement.scrollWidth, wide };
"""


def cells(browser, column):
    code = """return [...document.querySelectorAll('#by-unit tbody tr')].filter(r => !r.hidden)
        .map(r => r.cells[arguments[0]].dataset.v ?? r.cells[arguments[0]].textContent);"""
    return browser.js(code, column)


def head(browser, text):
    heads = browser.driver.find_elements(By.CSS_SELECTOR, "#by-unit thead th")
    column = next(k for k, one in enumerate(heads) if one.text.startswith(text))
    return column, heads[column], heads[column].find_element(By.TAG_NAME, "button")


@pytest.mark.parametrize("name", NAMES)
def test_opens_without_a_word_on_the_console_and_without_network(browser, pages, name):
    browser.driver.get_log("performance")
    browser.open(pages[name])
    assert browser.js("return document.readyState") == "complete"
    assert browser.js("return document.documentElement.classList.contains('scripted')")
    assert browser.console() == []
    messages = [json.loads(m["message"])["message"] for m in browser.driver.get_log("performance")]
    urls = {
        m["params"]["request"]["url"]
        for m in messages
        if m["method"] == "Network.requestWillBeSent"
    }
    assert urls
    # "chrome:" are the browser's own pages, such as the one that it starts with.
    assert all(url.startswith(("file:", "data:", "chrome:")) for url in urls), urls
    browser.keep_picture(f"{name}-light")


def test_sorting_by_mouse_and_keyboard(browser, pages):
    browser.open(pages["queries"])
    column, th, button = head(browser, "Error")
    assert th.get_attribute("aria-sort") == "descending"
    values = [float(v) for v in cells(browser, column)]
    assert len(values) == 25
    assert values == sorted(values, reverse=True)
    assert values[0] > 0

    button.click()
    assert th.get_attribute("aria-sort") == "ascending"
    values = [float(v) for v in cells(browser, column)]
    assert values == sorted(values)

    column, pairs, button = head(browser, "Pairs")
    button.send_keys(Keys.ENTER)
    assert pairs.get_attribute("aria-sort") == "descending"
    assert th.get_attribute("aria-sort") == "none"
    values = [float(v) for v in cells(browser, column)]
    assert values == sorted(values, reverse=True)
    button.send_keys(Keys.SPACE)
    assert pairs.get_attribute("aria-sort") == "ascending"

    column, name, button = head(browser, "Query")
    button.click()
    assert name.get_attribute("aria-sort") == "ascending"
    numbers = [int(v.rsplit(" ", 1)[1]) for v in cells(browser, column)]
    assert numbers == sorted(numbers)  # 2 before 10


def test_queries_without_a_value_stay_last(browser, pages):
    browser.open(pages["queries"])
    column, _, button = head(browser, "NDCG")
    browser.driver.find_element(By.ID, "all").click()
    for _ in range(2):
        button.click()
        values = [v == "" for v in cells(browser, column)]
        assert values == sorted(values)


def test_searching(browser, pages):
    browser.open(pages["queries"])
    box = browser.driver.find_element(By.ID, "search")
    status = browser.driver.find_element(By.ID, "status")
    total = browser.js("return document.querySelectorAll('#by-unit tbody tr').length")
    assert status.text == f"Showing 25 of {total}."
    box.send_keys("SHOES 11")
    found = cells(browser, 0)
    assert found
    assert all("shoes 11" in text for text in found)
    assert status.text == f"Showing {len(found)} of {len(found)} found."
    box.send_keys("xyz")
    assert cells(browser, 0) == []
    assert status.text == "Nothing found."
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(Keys.DELETE)
    assert len(cells(browser, 0)) == 25
    browser.driver.find_element(By.ID, "all").click()
    assert len(cells(browser, 0)) == total
    assert not browser.driver.find_element(By.ID, "more").is_displayed()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_contrast(browser, pages, name, dark):
    browser.open(pages[name], dark=dark)
    browser.js("document.querySelectorAll('details').forEach(d => d.open = true)")
    result = browser.js(CONTRAST)
    assert result["seen"] > 100
    assert result["bad"] == []
    page = browser.js("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, page[4:-1].split(","))) < 3 * 64) == dark
    if dark:
        browser.keep_picture(f"{name}-dark")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [320, 375, 768])
def test_nothing_sticks_out_on_a_small_screen(browser, pages, name, width):
    browser.open(pages[name], width=width, height=800, mobile=width < 768)
    browser.js("document.querySelectorAll('details').forEach(d => d.open = true)")
    result = browser.js(OVERFLOW)
    assert result["wide"] == width
    assert result["page"] <= width, result
    assert result["out"] == []
    sizes = browser.js(
        """return [...document.querySelectorAll('svg.chart')].map(s =>
        s.getBoundingClientRect().width / s.viewBox.baseVal.width *
        parseFloat(getComputedStyle(s.querySelector('text')).fontSize))"""
    )
    assert sizes
    assert min(sizes) >= 9.5
    if width == 375:
        browser.keep_picture(f"{name}-phone")


def test_heads_of_tables_do_not_break_inside_a_word(browser, pages):
    browser.open(pages["test"], width=1200)
    browser.js("document.querySelector('.facts').style.width = '8rem'")
    broken = """
    return [...document.querySelectorAll(".facts thead .num")].filter((e) => {
      const range = document.createRange();
      range.selectNodeContents(e);
      const lines = new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size;
      return lines > e.textContent.trim().split(/\\s+/).length;
    }).map((e) => e.textContent)"""
    assert browser.js(broken) == []


def test_hostile_names_are_only_text(browser, pages):
    browser.open(pages["evil"])
    assert browser.js("return window.hacked === undefined")
    assert browser.js("return document.scripts.length") == 2
    assert browser.js("return document.images.length") == 0
    assert "<script>window.hacked=1</script>" in browser.driver.title
    first = browser.js("return document.querySelector('#by-unit tbody th').textContent")
    assert first.startswith("<script>window.hacked=1</script><img")
    results = browser.js("return JSON.parse(document.getElementById('results').textContent)")
    assert results["n_queries"] == 30


def test_the_policy_stops_scripts_that_are_not_the_page_s_own(browser, pages):
    browser.open(pages["queries"])
    browser.js(
        """const s = document.createElement('script'); s.textContent = 'window.hacked = 1';
        document.body.append(s);"""
    )
    assert browser.js("return window.hacked === undefined")
    assert any("Content Security Policy" in line for line in browser.console())


def test_without_scripts_the_whole_table_is_there(browser, pages):
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(pages["queries"])
    rows = browser.driver.find_elements(By.CSS_SELECTOR, "#by-unit tbody tr")
    assert len(rows) > 25
    assert all(row.is_displayed() for row in rows[20:40])
    assert not browser.driver.find_element(By.ID, "search").is_displayed()


def test_keyboard_reaches_everything_and_shows_where_it_is(browser, pages):
    browser.open(pages["queries"])
    body = browser.driver.find_element(By.TAG_NAME, "body")
    reached = []
    for _ in range(40):
        body.send_keys(Keys.TAB)
        reached.append(
            browser.js(
                """const e = document.activeElement;
                return [e.tagName, e.id, getComputedStyle(e).outlineStyle !== 'none'];"""
            )
        )
    assert ["INPUT", "search", True] in reached
    assert sum(tag == "BUTTON" for tag, _, _ in reached) >= 6
    assert all(visible for tag, _, visible in reached if tag in ("BUTTON", "A", "INPUT"))


def test_names_and_roles(browser, pages):
    """What a screen reader is told."""
    browser.open(pages["queries"])
    browser.command("Accessibility.enable")
    nodes = browser.command("Accessibility.getFullAXTree")["nodes"]
    browser.command("Accessibility.disable")

    def named(role):
        found = [n for n in nodes if n.get("role", {}).get("value") == role and not n["ignored"]]
        return [n.get("name", {}).get("value", "") for n in found]

    assert all(named("image"))
    assert len(named("image")) == 3
    assert named("searchbox") == ["Search by name"]
    assert all(named("button"))
    assert all(named("link"))
    assert "Error by query" in named("region")
    assert "Labels to check" in named("region")
    assert "Sections" in named("navigation")


def test_prints(browser, pages, tmp_path):
    browser.open(pages["queries"])
    pdf = browser.pdf()
    assert pdf.startswith(b"%PDF")
    n_pages = pdf.count(b"/Type /Page\n") or pdf.count(b"/Type/Page/") or pdf.count(b"/Type /Page")
    assert 2 <= n_pages <= 16
    browser.command("Emulation.setEmulatedMedia", media="print", features=[])
    assert not browser.driver.find_element(By.TAG_NAME, "nav").is_displayed()
    assert browser.js(CONTRAST)["bad"] == []
