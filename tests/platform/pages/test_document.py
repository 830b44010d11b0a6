"""Pages: every text is escaped, data cannot end its own block, and the policy admits nothing but the page itself."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from soulsgraph.pages import page, section, table, tag

HOSTILE = "</title></script><img src=x onerror=\"document.title='PWNED'\"><script>document.title='PWNED'</script>&amp;'"
_TEXTS = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=60) | st.sampled_from(
    [HOSTILE, "<!--", "]]>", "\u2028</style>", "&lt;b&gt;", "javascript:alert(1)"]
)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.titles: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.titles += [value or "" for name, value in attrs if name == "title"]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader


@given(_TEXTS, _TEXTS)
def test_any_text_stays_a_text(text: str, other: str) -> None:
    found = _read(tag("p", text, tag("b", other, title=text)))
    assert found.tags == ["p", "b"]
    assert "".join(found.texts) == text + other
    assert found.titles == [text]


@given(_TEXTS)
def test_data_reach_the_script_as_they_are(text: str) -> None:
    html = page(
        text, section(text, table([text], [[text]])), data={"name": text, text: [1, None]}, scripts=["replay.js"]
    )
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert [json.loads(one) for one in found] == [{"name": text, text: [1, None]}]
    assert html.count("<script") == html.count("</script>") == 2


def test_the_policy_admits_the_pages_own_script_and_style_alone() -> None:
    html = page("title", tag("p", "text"), data={}, scripts=["replay.js"])
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in unescape(policy[1]).split(";"))
    assert rules["default-src"] == "'none'"
    assert all("http" not in rule and "unsafe" not in rule for rule in rules.values())
    assert rules["script-src"].startswith("'sha256-")
    assert 'style="' not in html
