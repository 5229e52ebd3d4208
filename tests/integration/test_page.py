"""The chat page in a headless Chromium: what is shown is what the server said, on small and large screens."""

from __future__ import annotations

import os
import shutil

import pytest
from served import serving, settings, slow_down

playwright = pytest.importorskip("playwright.sync_api")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    chosen = settings(tmp_path_factory.mktemp("project"), "serve.max_tokens=200", "decide.threshold=0.5")
    with serving(chosen) as running:
        slow_down(running, 0.01)
        yield running


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, server, request):
    """The page, opened; any error in its console or request elsewhere fails the test."""
    width, scheme = getattr(request, "param", (1280, "light"))
    opened = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    wrong: list[str] = []
    opened.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    opened.on("pageerror", lambda e: wrong.append(str(e)))
    opened.on("request", lambda r: wrong.append(r.url) if not r.url.startswith((server.url, "data:")) else None)
    opened.goto(server.url)
    opened.wait_for_selector("body[data-state=ready]")
    yield opened
    picture = os.environ.get("SEMSPEC_SCREENSHOTS")
    if picture:
        opened.screenshot(path=f"{picture}/{request.node.name}.png")
    opened.close()
    assert [w for w in wrong if "Failed to load resource" not in w] == []


def ask(page, question: str) -> None:
    page.fill("#text", question)
    page.click("#send")


def done(page, cards: int = 1) -> None:
    """Wait for so many answers; the page's policy lets no test evaluate a condition again and again."""
    page.wait_for_selector(f".answer:nth-of-type({2 * cards}) .facts b")
    page.wait_for_selector("body[data-state=ready]")


@pytest.mark.parametrize("page", [(1280, "light"), (420, "dark")], indirect=True)
def test_an_answer_is_coloured_by_author(page):
    """Each step has its author's colour and, on hover, p and q; speed and shares are shown; nothing overflows."""
    ask(page, "What is 6 times 7?")
    done(page)
    authors = page.eval_on_selector_all(
        ".step", "all => all.map(e => [e.step.author, e.className.includes(e.step.author)])"
    )
    assert {a for a, _ in authors} == {"draft", "target"} and all(painted for _, painted in authors)
    paint = "e => getComputedStyle(e).backgroundColor"
    assert page.eval_on_selector(".step.draft", paint) != page.eval_on_selector(".step.target", paint)
    page.hover(".step.draft >> nth=0")
    tip = page.inner_text("#tip.on")
    step = page.eval_on_selector(".step.draft", "e => e.step")
    assert "Written by the draft" in tip and f"{step['p']:.2f}" in tip and f"{step['q']:.2f}" in tip
    assert "tokens/s" in page.inner_text(".rate") and "drafted steps kept" in page.inner_text(".facts")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def counted(server, name: str, **labels: str) -> float:
    """A sample of the server's metrics."""
    return server.desk.metrics.registry.get_sample_value(name, labels) or 0.0


def test_the_page_counts_as_the_server_does(page, server):
    """Tokens on the page are those of the metrics, by author; a second question carries the first with it."""
    page.fill("#tokens", "60")  # a conversation of two turns fits into the context
    before = {author: counted(server, "semspec_tokens_total", author=author) for author in ("draft", "target")}
    ask(page, "one")
    done(page)
    new = {author: counted(server, "semspec_tokens_total", author=author) - n for author, n in before.items()}
    total = sum(new.values())
    assert int(page.inner_text(".facts span >> nth=0").split()[0]) == total > 0
    for author, n in new.items():
        width = page.eval_on_selector(f".bar .{author}", "e => parseFloat(e.style.width)")
        assert width == pytest.approx(100 * n / total, abs=0.1)
    ask(page, "two")
    done(page, 2)
    assert page.evaluate("turns.map(t => t.role)") == ["user", "assistant"] * 2
    page.click("#fresh")
    assert page.evaluate("turns.length") == 0 and page.locator(".card").count() == 0


def test_the_dial_is_sent(page):
    """Moved to speed, every step that can be kept is; moved to quality, only those that are sure."""
    scores = {}
    for value in (100, 0):
        page.click("#fresh")
        page.fill("#dial", str(value))
        ask(page, "What is 6 times 7?")
        done(page)
        steps = page.eval_on_selector_all(".step", "all => all.map(e => e.step)")
        scores[value] = [s["score"] for s in steps if s["accepted"]]
        assert all((s["score"] >= 1 - value / 100) is s["accepted"] for s in steps)
    assert min(scores[100]) < 1 == min(scores[0])


def test_stop_and_compare(page, server):
    """Stop ends the decode on the server too; the comparison asks the target alone."""
    before = counted(server, "semspec_requests_total", path="/v1/chat/completions", status="499")
    ask(page, "count")
    page.wait_for_selector(".step")
    page.click("#send")
    page.wait_for_selector(".error:has-text('stopped')")
    for _ in range(30):
        gone = counted(server, "semspec_requests_total", path="/v1/chat/completions", status="499")
        if gone > before:
            break
        page.wait_for_timeout(100)
    assert gone == before + 1 and server.desk.running == 0
    page.fill("#tokens", "40")
    page.fill("#dial", "60")
    ask(page, "count again")
    done(page, 2)
    page.click("text=Compare with the target alone")
    page.wait_for_selector(".verdict")
    assert "tokens per second of the target alone" in page.inner_text(".verdict")


def test_an_error_is_shown_in_words(page):
    """What the server refuses is read on the page."""
    page.fill("#tokens", "201")
    page.evaluate("ask('x')")
    page.wait_for_selector(".error:has-text('at most 200')")


@pytest.mark.parametrize("page", [(420, "light")], indirect=True)
def test_settings_open_on_a_small_screen(page):
    """The drawer comes and goes."""
    assert not page.is_visible("#method")
    page.click("#open")
    page.wait_for_selector("#method", state="visible")
    page.keyboard.press("Escape")
    page.wait_for_selector("#method", state="hidden")
