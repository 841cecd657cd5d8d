"""docs/seeds.md names files and tests that exist, and every program of examples/seeds."""

import re

import pytest
from seed_programs import EXAMPLES, ROOT


@pytest.mark.parametrize("page", ["docs/seeds.md", "docs/seeds.zh-CN.md"])
def test_the_page_names_what_there_is(page):
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`(?:\w+=\S+ )?([\w/]+\.(?:py|sh))", text))
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "seeds").glob("test_*.py"))
    for name in re.findall(r"`(test_\w+|Test\w+)(?!\w|\.py)", text):
        assert re.search(rf"(def|class) {name}\b", tests), name
    for path in EXAMPLES.rglob("*"):
        if path.suffix in (".py", ".sh") and path.name != "__init__.py":
            inside = path.relative_to(EXAMPLES).as_posix().partition("/")[2]
            assert inside in named, inside
