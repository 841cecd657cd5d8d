"""The Python blocks of the pages run, in order, as a reader would type them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README", "docs/guide")


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_code_of_the_page_runs(page, tmp_path):
    script = tmp_path / "page.py"
    script.write_text("\n".join(python_blocks(f"{page}.md")))
    path = f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}, {str(ROOT / 'compat')!r}]; "
    run = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", path + run], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("page", PAGES)
def test_translation_shows_the_same_code(page):
    def bare(blocks: list[str]) -> list[str]:
        """Comments and printed sentences are translated; the code is not."""
        return [re.sub(r'\s*#.*|print\("[^"]*"', "", block) for block in blocks]

    assert bare(python_blocks(f"{page}.md")) == bare(python_blocks(f"{page}.zh-CN.md"))
