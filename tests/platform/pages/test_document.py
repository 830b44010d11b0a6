"""Pages: every text is escaped, data cannot end its own block, and the policy admits nothing but the page itself."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from soulsgraph.pages import page
from soulsgraph.pages.report import Report, Section
from soulsgraph.results.tables import Table, read_rows

HOSTILE = "</title></script><img src=x onerror=\"document.title='PWNED'\"><script>document.title='PWNED'</script>&amp;'"
_TEXTS = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=60) | st.sampled_from(
    [HOSTILE, "<!--", "]]>", "\u2028</style>", "&lt;b&gt;", "javascript:alert(1)"]
)


#: What a page has around its body, and what a text may become: emphasis, code, lists and their like, nothing active.
_ADMITTED = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "h4", "h5", "h6", "p", "table", "thead"),
    *("tbody", "tr", "th", "td", "em", "strong", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "br"),
}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader


@given(_TEXTS)
def test_any_text_stays_a_text(text: str) -> None:
    found = _read(Report(text, [Section(text, [text], [Table(text, [text], [[text]], text)])]).to_html())
    assert {*found.tags} <= _ADMITTED


@given(_TEXTS)
def test_data_reach_the_script_as_they_are(text: str) -> None:
    html = page(text, body=text, data={"name": text, text: [1, None]}, scripts=["replay.js"])
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert [json.loads(one) for one in found] == [{"name": text, text: [1, None]}]
    assert html.count("<script") == html.count("</script>") == 2
    assert text in _read(html).texts or not text.strip()


def test_the_policy_admits_the_pages_own_script_and_style_alone() -> None:
    html = page("title", body="text", data={}, scripts=["replay.js"])
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in unescape(policy[1]).split(";"))
    assert rules["default-src"] == "'none'"
    assert all("http" not in rule and "unsafe" not in rule for rule in rules.values())
    assert rules["script-src"].startswith("'sha256-")
    assert 'style="' not in html


def test_a_report_has_the_same_in_both_forms_and_leaves_out_what_is_empty(tmp_path: Path) -> None:
    table = Table("of two", ("name", "value"), [("a | b", "**1.0**")], "What it is.")
    film, figure = b"film", Figure()
    parts = [
        Section("Rows", ["It is so."], [table, Table("none", ("name",), [])]),
        Section("Seen", pictures={"film.mp4": film, "drawn.png": figure, "gone.png": None}),
        Section("Nothing", tables=[Table("", ("name",), [])]),
    ]
    written = Report("A & B", parts).write(tmp_path, {"x": float("nan")}, {"rows": [{"a": 1}]})
    text, html = written.read_text(encoding="utf-8"), (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.findall(r"^#+ (.*)$", text, re.M) == ["A & B", "Rows", "of two", "Seen"]
    assert re.findall(r"<h\d>(.*?)</h\d>", html) == ["A &amp; B", "Rows", "of two", "Seen"]
    assert "| a \\| b | **1.0** |" in text
    assert "<td>a | b</td>" in html
    assert "<strong>1.0</strong>" in html
    assert f'<video src="data:video/mp4;base64,{b64encode(film).decode()}"' in html
    assert html.count("<img ") == 1
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {"film.mp4", "drawn.png"}
    assert json.loads((tmp_path / "report.json").read_text()) == {"x": None}
    assert read_rows(tmp_path / "tables" / "rows.parquet") == [{"a": 1}]
