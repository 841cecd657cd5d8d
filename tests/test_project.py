"""The project as a whole: what is shipped, what it is called, what importing it costs."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import fleetx
from fleetx.kernels import compiled

ROOT = Path(__file__).resolve().parent.parent

# Paths and hosts of somebody's machine: true there, wrong everywhere else.
PRIVATE = re.compile(
    r"/(?:home|Users)/[a-z]\w*/|/(?:root|work|opt)/\w|file:///|"
    + "|".join(re.escape(f"{path}/") for path in (ROOT, Path.home()))
)


# Pages in English and Chinese, without their endings.
TRANSLATED = sorted(
    str(path.relative_to(ROOT)).removesuffix(".zh-CN.md")
    for path in (*ROOT.glob("*.zh-CN.md"), *(ROOT / "docs").glob("*.zh-CN.md"))
)


def headings(page: Path) -> list[tuple[int, str]]:
    """The level and the text of every heading of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"^(#+) (.*)$", text, flags=re.MULTILINE)
    return [(len(marks), title) for marks, title in found]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    titles = (title.lower().replace("`", "") for _, title in headings(page))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def project(folder: str = ".") -> dict:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]


def tracked_files() -> list[Path]:
    """The files git knows; in an unpacked archive without git, the sources."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        names = [ROOT / name for name in done.stdout.split("\0") if name]
    else:
        names = [p for d in ("src", "compat", "tests", "docs") for p in (ROOT / d).rglob("*.*")]
    return [path for path in names if path.is_file()]


def run_python(code: str) -> str:
    """Run code in a new interpreter that sees this project, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}"],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'compat'}"},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def build_wheel(source: Path, target: Path) -> set[str]:
    """Build a wheel with the tools that are installed (no download) and list its files.

    The C modules are compiled without optimisation, which takes a tenth of the time.
    """
    target.mkdir()
    compiler = target / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    compiler.chmod(0o755)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", target, source],
        env={**os.environ, "CC": str(compiler), "LDSHARED": f"{compiler} -shared"},
        check=True,
        capture_output=True,
        text=True,
    )
    (wheel,) = target.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tracked files, so that building leaves nothing in the work tree."""
    copy = tmp_path_factory.mktemp("sources")
    for path in tracked_files():
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return copy


class TestVersions:
    def test_package_and_distribution_agree(self):
        assert fleetx.__version__ == project()["version"]

    def test_both_distributions_move_together(self):
        names = project("compat")
        assert names["version"] == fleetx.__version__
        assert f"fleetx=={fleetx.__version__}" in names["dependencies"]

    def test_every_dependency_is_pinned(self):
        pins = dict(
            line.split("==")
            for line in (ROOT / "constraints.txt").read_text().splitlines()
            if line and not line.startswith("#")
        )
        wanted = project()["dependencies"] + project("compat")["dependencies"]
        for extra in project()["optional-dependencies"].values():
            wanted += [item for item in extra if not item.startswith("fleetx")]
        names = {re.split(r"[<>=\[ ]", item)[0].lower() for item in wanted}
        assert names - set(pins) == {"fleetx"}
        assert pins["torch"] == "2.13.0"


class TestImports:
    def test_import_fleetx_loads_nothing_heavy(self):
        heavy = run_python(
            "import fleetx\nprint({'torch', 'numpy', 'rich', 'google', 'zmq'} & set(sys.modules))"
        )
        assert heavy == "set()"

    @pytest.mark.slow
    def test_parts_load_on_first_use_and_never_the_paddle_names(self):
        code = "import fleetx\nprint(fleetx.static.__name__, 'paddle' in sys.modules)"
        assert run_python(code) == "fleetx.static False"

    @pytest.mark.slow
    def test_paddle_loads_the_fleet_api_on_first_use(self):
        code = """
import paddle
heavy = {"fleetx.fleet", "fleetx.techniques", "zmq", "safetensors"}
print(heavy & set(sys.modules), end=" ")
print(paddle.distributed.fleet.__name__, paddle.fluid.incubate.fleet.__name__)
"""
        names = "paddle.distributed.fleet paddle.fluid.incubate.fleet"
        assert run_python(code) == f"set() {names}"

    def test_unknown_part_is_named(self):
        with pytest.raises(AttributeError, match="no attribute .statics.; its parts are:"):
            _ = fleetx.statics

    def test_parts_are_listed(self):
        assert "static" in dir(fleetx)


class TestFiles:
    def test_no_file_names_somebodys_machine(self):
        found = []
        for path in tracked_files():
            if path.name == Path(__file__).name or path.suffix in {".pb", ".npz", ".png"}:
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [f"{path.relative_to(ROOT)}: {m.group()}" for m in PRIVATE.finditer(text)]
        assert found == []

    @pytest.mark.parametrize("page", TRANSLATED)
    def test_translations_have_the_same_sections(self, page):
        def levels(name: str) -> list[int]:
            return [level for level, _ in headings(ROOT / name)]

        assert levels(f"{page}.md") == levels(f"{page}.zh-CN.md")

    def test_links_between_pages_lead_somewhere(self):
        broken = []
        for page in tracked_files():
            if page.suffix != ".md":
                continue
            links = re.findall(r"\]\((?!https?:|mailto:)([^)#]*)(?:#([^)]+))?\)", page.read_text())
            for target, anchor in links:
                path = page.parent / target if target else page
                if not path.exists() or (anchor and anchor not in anchors(path)):
                    broken.append(f"{page.relative_to(ROOT)} -> {target}#{anchor}")
        assert broken == []

    def test_every_page_is_listed_in_both_languages(self):
        for name in ("README.md", "README.zh-CN.md"):
            listed = re.findall(r"\]\(([\w./-]+\.md)\)", (ROOT / "docs" / name).read_text())
            pages = {page.name.removesuffix(".md") for page in (ROOT / "docs").glob("*.md")}
            pages = {page.removesuffix(".zh-CN") for page in pages} - {"README", "guide"}
            assert {Path(page).name.split(".")[0] for page in listed} >= pages

    def test_readme_starts_with_the_two_commands(self):
        for name in ("README.md", "README.zh-CN.md"):
            first = (ROOT / name).read_text().split("```")[1]
            assert "make demo" in first
            assert "make test" in first


class TestWheels:
    @pytest.mark.slow
    def test_fleetx(self, sources, tmp_path):
        files = build_wheel(sources, tmp_path / "wheel")
        assert {"fleetx/__init__.py", "fleetx/py.typed", "fleetx/static/__init__.py"} <= files
        assert any(name.endswith("licenses/LICENSE") for name in files)
        tops = {name.split("/")[0] for name in files}
        assert tops == {"fleetx", f"fleetx-{fleetx.__version__}.dist-info"}
        assert self.modules("src") <= files
        built = {name for name in compiled.MODULES if compiled.is_there(name)}
        found = {n.removesuffix(".abi3.so").replace("/", ".") for n in files if n.endswith(".so")}
        assert found == built  # this machine has a compiler if it compiled them for this checkout

    @pytest.mark.slow
    def test_fleetx_paddle(self, sources, tmp_path):
        files = build_wheel(sources / "compat", tmp_path / "wheel")
        assert {"paddle/__init__.py", "paddle/py.typed"} <= files
        tops = {name.split("/")[0] for name in files}
        assert tops == {"paddle", f"fleetx_paddle-{fleetx.__version__}.dist-info"}
        assert self.modules("compat") <= files

    @staticmethod
    def modules(folder: str) -> set[str]:
        root = ROOT / folder
        inside = (path.relative_to(root) for path in tracked_files() if root in path.parents)
        return {str(path) for path in inside if path.suffix == ".py"}


def test_every_name_of_the_package_is_there():
    import fleetx

    for name in fleetx.__all__:
        assert getattr(fleetx, name) is not None
