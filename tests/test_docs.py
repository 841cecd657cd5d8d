"""The Python blocks of the pages run, as a reader would type them.

The blocks of a page are one program, from top to bottom. A word after `python` on the first line of
a block sets it apart: `new` begins another program, `compiler` needs a C++ compiler, and any other
word (`ddp`, `fleetx-ddp`) makes a variant: the blocks without a word, then those with this one.
Files that a page speaks of, and what is made smaller, are in `page_files.py`.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import page_files
import warm_start
from fleetx.launch import arguments

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python ?([\w-]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^```([\w -]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TWO_WORKERS = ["-m", "fleetx.launch", "--nproc_per_node", "2"]
SERVERS = ["-m", "fleetx.launch", "--server_num", "1", "--worker_num", "2"]
LAUNCHED = {
    "docs/first-training": TWO_WORKERS,
    "docs/techniques": TWO_WORKERS,
    "docs/local-sgd": TWO_WORKERS,
    "docs/compression": TWO_WORKERS,
    "docs/large-batches": TWO_WORKERS,
    "docs/memory": TWO_WORKERS,
    "docs/precision": TWO_WORKERS,
    "docs/parameter-servers": SERVERS,
}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
# Programs of other libraries, and ours that train alike. Horovod does not build against this torch;
# its program begins as DDP's does, so that ours is compared with DDP's first loss.
COMPARED = {
    "ddp": ["fleetx-ddp", "fleetx-horovod", "fleetx-deepspeed"],
    "accelerate": ["fleetx-accelerate"],
    "lightning": ["fleetx-lightning"],
}
NOT_RUN = {"horovod", "deepspeed", "torchrec"}
WITH_SERVERS = {"fleetx-torchrec"}


def english_pages() -> list[str]:
    """All pages with a Python block, without their ending."""
    folders = (".", "docs", "bench", "interop", "examples")
    paths = [path for folder in folders for path in (ROOT / folder).glob("*.md")]
    names = [str(path.relative_to(ROOT).with_suffix("")) for path in paths]
    return sorted(n for n in names if not n.endswith(".zh-CN") and python_blocks(f"{n}.md"))


def python_blocks(page: str) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with its word."""
    return BLOCK.findall((ROOT / page).read_text())


def variants(page: str) -> list[str]:
    """The variants of a page's program."""
    words = {word for word, _ in python_blocks(f"{page}.md")}
    return sorted(words - {"", "new", "compiler"})


def programs(page: str, variant: str = "") -> list[str]:
    """The programs of a page."""
    leave_out = set(variants(page)) - {variant}
    if shutil.which("g++") is None:
        leave_out.add("compiler")
    texts = [""]
    for word, block in python_blocks(f"{page}.md"):
        if word == "new":
            texts.append("")
        if word not in leave_out:
            texts[-1] += block + "\n"
    return [text for text in texts if text]


def run(text: str, folder: Path, launcher: list[str]) -> str:
    """Run a program in a folder with a launcher; return what it printed."""
    script = folder / "page.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, *launcher, str(script)],
        cwd=folder,
        env=warm_start.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in english_pages() if not variants(page)])
def test_code_of_the_page_runs(page, tmp_path):
    with page_files.prepared(page, tmp_path) as smaller:
        for text in programs(page):
            run(smaller(text), tmp_path, [])


@pytest.mark.slow
@pytest.mark.parametrize("page", LAUNCHED)
def test_code_of_the_page_runs_in_a_job(page, tmp_path):
    for text in programs(page):
        run(text, tmp_path, LAUNCHED[page])


@pytest.mark.slow
@pytest.mark.parametrize("other", COMPARED)
def test_both_sides_of_a_comparison_train_alike(other, tmp_path):
    def losses(variant: str, launcher: list[str]) -> list[float]:
        folder = tmp_path / variant
        folder.mkdir()
        (text,) = programs(f"docs/from-{variant.removeprefix('fleetx-')}", variant)
        only_first = "import builtins, os\n"
        only_first += "builtins.print = print if os.environ['RANK'] == '0' else lambda *_: None\n"
        printed = run(only_first + text, folder, launcher)
        return [float(loss) for loss in re.findall(r"\bloss ([0-9.e-]+)", printed)]

    theirs = losses(other, TORCHRUN)
    for name in COMPARED[other]:
        ours = losses(name, TWO_WORKERS)
        assert len(ours) == (len(theirs) if name == f"fleetx-{other}" else 1)
        assert ours == pytest.approx(theirs[: len(ours)], rel=2e-2)
        assert ours[0] == pytest.approx(theirs[0], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("ours", sorted(WITH_SERVERS))
def test_programs_for_servers_run_with_them(ours, tmp_path):
    (text,) = programs(f"docs/from-{ours.removeprefix('fleetx-')}", ours)
    assert re.search(r"\bloss [0-9.]+", run(text, tmp_path, SERVERS))


def test_every_variant_is_run():
    words = {word for page in english_pages() for word in variants(page)}
    compared = {ours for each in COMPARED.values() for ours in each}
    assert words == {*COMPARED, *NOT_RUN, *compared, *WITH_SERVERS}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_launcher_knows_the_flags_of_the_page(page):
    for _, block in FENCE.findall(page.read_text()):
        for line in re.findall(r"^(?:\w+=\S+ )*fleetrun (.*)", block, re.MULTILINE):
            if "…" not in line:
                arguments.parse(shlex.split(line, comments=True), {})


@pytest.mark.parametrize("page", english_pages())
def test_no_python_hides_in_a_block_without_language(page):
    code = re.compile(r"^(import \w|from \w+(\.\w+)* import|\w+(\.\w+)* = |with \w.*:$)", re.M)
    for language, block in FENCE.findall((ROOT / f"{page}.md").read_text()):
        if not language:
            assert not code.search(block), block


def translated_pages() -> list[str]:
    paths = [*ROOT.glob("*.zh-CN.md"), *(ROOT / "docs").glob("*.zh-CN.md")]
    return sorted(str(path.relative_to(ROOT)).removesuffix(".zh-CN.md") for path in paths)


@pytest.mark.parametrize("page", translated_pages())
def test_translation_shows_the_same_code(page):
    def bare(page: str) -> list[tuple[str, str]]:
        """Comments and printed sentences are translated; the code is not."""
        blocks = FENCE.findall((ROOT / page).read_text())
        hidden = re.compile(r'\s*#.*|print\("[^"]*"')
        return [(language, hidden.sub("", code)) for language, code in blocks if language]

    assert bare(f"{page}.md") == bare(f"{page}.zh-CN.md")
