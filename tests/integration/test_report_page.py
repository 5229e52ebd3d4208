"""The built report in a headless Chromium: no script error, nothing fetched, tables and pictures show, links work."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
import fake_results as fake
from matplotlib.figure import Figure

from semspec.report.page import build

playwright = pytest.importorskip("playwright.sync_api")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small comparison, its pictures drawn as it shows them; the copies as PNG stay empty."""
    draw, root = Figure.savefig, tmp_path_factory.mktemp("project")
    rows = fake.rows(3)
    semantic = [r for r in rows if r["method"] == "semantic"]
    more = [r | {"method": "semantic@gamma=2"} for r in semantic] + [fake.hybrid(r, 4.0, 20) for r in semantic]
    fake.write_bench(root, rows + more)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Figure, "savefig", lambda f, t, **how: t.touch() if t.suffix == ".png" else draw(f, t, **how))
        return build(fake.settings(), root)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu", "--no-first-run"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (420, "dark")])
def test_the_report_reads_in_a_browser(browser: Any, report: Path, width: int, scheme: str) -> None:
    """On a large and a small screen: every table and picture has a size, the page does not scroll sideways, folded
    tables open, and a problem's page shows its chain and leads back."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    wrong: list[str] = []
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("request", lambda r: wrong.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
    page.goto(report.as_uri())
    folded = page.locator("details.fold:not([open]) > summary")
    for _ in range(folded.count()):
        folded.first.click()
    assert folded.count() == 0
    for name in ("section > .scroll table", "details.fold table", "figure svg"):
        boxes = [shown.bounding_box() for shown in page.locator(name).all()]
        assert boxes and all(box and box["width"] > 100 and box["height"] > 20 for box in boxes), name
    assert page.is_visible("h2:has-text('What salvaging saves') ~ .dense table")
    assert page.is_visible("figure:has-text('Figure 4') svg")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.click("section:has(h2:text('All problems')) a >> nth=0")
    page.wait_for_selector("h1:has-text('Problem p0')")
    assert page.locator("ol.steps").count() == 5 and page.locator("ol.steps li").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.click("text=Next")
    page.wait_for_selector("h1:has-text('Problem p1')")
    page.click("text=All results")
    page.wait_for_selector("h2:has-text('All problems')")
    page.close()
    assert wrong == []
