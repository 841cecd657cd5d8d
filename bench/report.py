"""Write the tables of bench/README.md and of the READMEs from the figures of the last runs.

    python bench/report.py

The text between the lines `<!-- figures: NAME -->` and `<!-- end of figures -->` is generated from
bench/results/NAME.json; NAME `interop` is interop/results.json, `matrix` and `matrix_zh` are
tests/matrix.json. The rest of the text is not changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGES = (HERE / "README.md", ROOT / "README.md", ROOT / "README.zh-CN.md")
ELSEWHERE = {
    "interop": ROOT / "interop" / "results.json",
    "matrix": ROOT / "tests" / "matrix.json",
    "matrix_zh": ROOT / "tests" / "matrix.json",
}
BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.S)


def table(headings: list[str], rows: list[list[str]], column: str = "--:") -> str:
    """Return a Markdown table; columns of figures are right-aligned."""
    lines = [headings, ["---" if i == 0 else column for i in range(len(headings))], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def origin(record: dict[str, Any]) -> str:
    """Return a sentence about the origin of the figures, as far as it was recorded."""
    machine = record.get("machine", {})
    known = {
        "command": f"`{record.get('command')}`",
        "date": record.get("date"),
        "cpu": machine.get("cpu"),
        "cores": f"{machine.get('cores', record.get('cores'))} cores",
        "python": f"Python {record.get('python')}",
        "torch": f"PyTorch {record.get('torch')}",
    }
    noted = {*record, *machine}
    missing = [name for name in known if name not in noted]
    text = ", ".join(str(value) for name, value in known.items() if name in noted)
    return f"{text}{'; not noted: ' + ', '.join(missing) if missing else ''}.\n"


def contest_table(record: dict[str, Any]) -> str:
    """Return the table of a contest, with goals and ratios."""
    rows = []
    for row in record["rows"]:
        high = row["higher_is_better"]
        reached = row["ratio"] >= row["goal"] if high else row["ratio"] <= row["goal"]
        goal = f"{'at least' if high else 'at most'} {row['goal']:g}x"
        rows.append(
            [
                row["what"],
                f"{row['ours_name']}: {row['ours']:.4g}",
                f"{row['peer_name']}: {row['peer']:.4g}",
                f"{row['ratio']:.2f}x",
                goal if reached else f"{goal}, missed",
            ]
        )
    text = table(["what", "FleetX", "against", "ratio", "goal"], rows) + "\n" + origin(record)
    parts = record.get("parts", {})
    if parts:
        loads = ", ".join(
            f"{name} {run['date']} at {run.get('load', 'no noted load')}"
            for name, run in parts.items()
        )
        text += f"Parts were run on their own; load of the machine when each began: {loads}.\n"
    return text


def contest_and_goals_table(record: dict[str, Any]) -> str:
    """Return the goals of a benchmark outside its contest, and the table of its contest."""
    return _goals(record) + "\n" + contest_table(record)


def import_table(record: dict[str, Any]) -> str:
    """Return the table of import times."""
    rows = [
        [f"`import {name}`", f"{row['median_s']:.3f}", f"{row['ratio_to_torch']:.2f}x"]
        for name, row in record["imports"].items()
    ]
    return table(["what", "seconds", "to torch"], rows) + "\n" + origin(record)


def checkpoint_table(record: dict[str, Any]) -> str:
    """Return how long a step waits for each way of saving, and how busy the machine was."""
    methods = record["methods"]
    rows = [
        [
            name,
            f"{row['wait']:.3f}",
            f"{row['first_wait']:.3f}",
            f"{row['whole']:.3f}",
            f"{row['wait'] / methods['FleetX, blocking']['wait']:.1%}",
            f"{row['wait'] / methods['torch.save']['wait']:.1%}",
        ]
        for name, row in methods.items()
    ]
    waits = ["a step waits, s", "first save, s", "all written, s"]
    heads = ["method", *waits, "wait to blocking", "wait to torch.save"]
    before, after = record["load_average"]
    load = f"Load of the machine before and after: {before:g} and {after:g}.\n"
    unprepared = f"Without `fleet.prepare_checkpoint`: {record['first_unprepared']:.3f} s.\n"
    note = f"The first save in the background was prepared. {unprepared}"
    return table(heads, rows) + "\n" + note + "\n" + origin(record) + load


def times_table(record: dict[str, Any]) -> str:
    """Return a table of times, with goals if there are any."""
    parts = ("median_s", "min_s", "max_s")
    rows = []
    for name, row in record["times"].items():
        limit = row.get("goal_s")
        goal = "" if limit is None else f"at most {limit:.2f}"
        missed = limit is not None and row["median_s"] > limit
        cells = [f"{row[part]:.2f}" for part in parts]
        rows.append([name, *cells, f"{goal}, missed" if missed else goal])
    return table(["what", "seconds", "min", "max", "goal"], rows) + "\n" + origin(record)


def _with_ops_joined(figures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for all single ops of an engine: hundreds would hide the others."""
    ops: dict[str, list[dict[str, Any]]] = {}
    for row in figures:
        if row["proof"] == "test_ops":
            ops.setdefault(row["engine"], []).append(row)
    joined = []
    for rows in ops.values():
        nearest = max(rows, key=lambda row: row["difference"] / row["limit"])
        cases = sum(row["cases"] for row in rows)
        joined.append({**nearest, "what": "single ops, nearest to the limit", "cases": cases})
    return [row for row in figures if row["proof"] != "test_ops"] + joined


def interop_table(figures: list[dict[str, Any]]) -> str:
    """Return the largest differences from each real Paddle."""
    figures = _with_ops_joined(figures)
    engines = sorted({row["engine"] for row in figures})
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in figures:
        found.setdefault(row["what"], {})[row["engine"]] = row
    rows = []
    for what, by_engine in found.items():
        cells = [what]
        for engine in engines:
            row = by_engine.get(engine)
            cells.append("" if row is None else f"{row['difference']:.1e} ({row['cases']})")
        limit = next(iter(by_engine.values()))["limit"]
        rows.append([*cells, f"{limit:g}"])
    return table(["what", *engines, "limit"], rows)


def _goals(record: dict[str, Any]) -> str:
    goals = []
    for goal in record["goals"]:
        limit = f"{'at least' if goal['at_least'] else 'at most'} {goal['goal']:g}"
        reached = limit if goal["reached"] else f"{limit}, missed"
        goals.append([goal["what"], f"{goal['value']:.2f}", reached])
    return table(["what", "value", "goal"], goals)


def goals_table(record: dict[str, Any]) -> str:
    """Return the table of a benchmark that only has goals."""
    return _goals(record) + "\n" + origin(record)


def seeds_of(row: dict[str, Any]) -> list[str]:
    """Return the cells of accuracy: the mean, and the range of all seeds."""
    seeds = row["accuracies"]
    if not seeds:
        return ["", ""]
    return [f"{row['accuracy']:.2f}", f"{min(seeds):.2f} to {max(seeds):.2f}"]


def local_sgd_table(record: dict[str, Any]) -> str:
    """Return the table of ways to train, followed by the goals."""
    rows = [
        [
            row["name"],
            f"{row['samples_per_second']:.0f}",
            *seeds_of(row),
            f"{row['kb_per_step']:.1f}",
        ]
        for row in record["rows"]
    ]
    ways = ["way", "samples/s", "accuracy, %", "of all seeds", "kB sent per step and worker"]
    tables = [table(ways, rows), _goals(record), origin(record)]
    return "\n".join(tables)


def compression_table(record: dict[str, Any]) -> str:
    """Return the table of compressed exchanges, followed by the goals."""
    rows = [
        [
            row["name"],
            row["settings"],
            f"{row['steps_per_second']:.2f}",
            f"{row['kb_per_step']:.1f}",
            *seeds_of(row),
        ]
        for row in record.get("rows", [])
    ]
    ways = ["way", "settings", "steps/s", "kB sent per step and worker", "accuracy, %"]
    tables = [table([*ways, "of all seeds"], rows)] if rows else []
    return "\n".join([*tables, _goals(record), origin(record)])


# `make test` runs all of them. `make matrix` runs those of the page, the others in one row only.
LAUNCHERS = ("fleetrun", "torchrun", "mpirun (Open MPI)", "srun (Slurm)")
ENGLISH = {
    "pinned": "`constraints.txt`",
    "chosen": "as listed, others newest",
    "lowest": "lower bounds of all dependencies",
}
CHINESE = {
    "run by `make matrix`": "`make matrix` 运行",
    "run by `make test` only": "仅 `make test` 运行",
    "not run": "未运行",
    "device": "设备",
    "system": "系统",
    "communication": "通信",
    "started by": "启动方式",
    "other CPUs": "其他 CPU",
    "MPI backend of PyTorch": "PyTorch 的 MPI 后端",
    "versions": "版本",
    "pinned": "`constraints.txt`",
    "newest": "最新",
    "chosen": "如左，其余最新",
    "lowest": "所有依赖的最低版本",
    "commands above": "上面的命令",
    "tests": "测试",
    "date": "日期",
    "passed": "通过",
    "failed": "失败",
    "skipped": "跳过",
    "error": "出错",
}
Words = Callable[[str], str]


def english(word: str) -> str:
    """Return the word as it stands in a table; most words stay as they are."""
    return ENGLISH.get(word, word)


def chinese(word: str) -> str:
    """Return the word in Chinese; names and the output of programs are not translated."""
    missing = re.fullmatch(r"no Python (\S+) found", word)
    return f"本机没有 Python {missing[1]}" if missing else CHINESE.get(word, word)


def outcome(row: dict[str, Any], say: Words = english) -> tuple[str, str]:
    """Return the outcome of a row of the matrix: the commands, and the tests."""
    for problem in ("not run", "error"):
        if problem in row:
            return f"{say(problem)}: {say(row[problem])}", ""
    failed = [name for name, passed in row["commands"].items() if not passed]
    commands = f"{len(row['commands']) - len(failed)} {say('passed')}"
    tests = f"{row['tests']['passed']} {say('passed')}"
    if failed:
        commands += f", {say('failed')}: {', '.join(failed)}"
    if row["tests"]["skipped"]:
        tests += f", {row['tests']['skipped']} {say('skipped')}"
    if row["tests"]["failed"]:
        tests += f", {len(row['tests']['failed'])} {say('failed')}"
    return commands, tests


def matrix_table(rows: dict[str, Any], say: Words = english) -> str:
    """Return where FleetX has been tested and where not, and the versions used."""
    done = [row for row in rows.values() if "commands" in row]
    used = {name for row in done for name in row["tests"]["launchers"]}
    used |= {name for row in done for name, passed in row["commands"].items() if passed}
    launchers = [name for name in LAUNCHERS if name in used]
    others = [name for name in LAUNCHERS if name not in used]
    where = [
        ["device", sorted({row["cpu"] for row in done}), [], ["CUDA", "ROCm", "other CPUs"]],
        ["communication", ["Gloo"], [], ["NCCL", "MPI backend of PyTorch"]],
        ["started by", launchers, others, ["Kubernetes"]],
        ["system", sorted({row["system"] for row in done}), [], ["macOS", "Windows"]],
    ]
    kinds = ["run by `make matrix`", "run by `make test` only", "not run"]
    lines = [[say(what), *(", ".join(map(say, cell)) for cell in cells)] for what, *cells in where]
    runs = []
    for row in rows.values():
        # The part after the plus is the build: cpu, cu126.
        torch = row.get("torch", "").split("+")[0]
        versions = [row["python"], torch, row.get("numpy", ""), say(row["versions"])]
        runs.append([*versions, *outcome(row, say), row["date"]])
    columns = ["PyTorch", "NumPy", "versions", "commands above", "tests", "date"]
    return "\n".join(
        [
            table(["", *map(say, kinds)], lines, "---"),
            table(["Python", *map(say, columns)], runs, "---"),
        ]
    )


def matrix_table_zh(rows: dict[str, Any]) -> str:
    """Return the tables of the matrix in Chinese."""
    return matrix_table(rows, chinese)


RENDERERS: dict[str, Callable[[Any], str]] = {
    "static_graph": contest_table,
    "sparse_programs": contest_table,
    "one_op": contest_table,
    "collective": contest_table,
    "shared_memory": contest_table,
    "hybrid": contest_table,
    "recompute": contest_table,
    "large_batch_optimizers": contest_table,
    "sparse_table": contest_table,
    "table_growth": contest_table,
    "server_restart": contest_table,
    "server_scale": contest_table,
    "parameter_server": contest_table,
    "serving": contest_table,
    "data": contest_and_goals_table,
    "import_time": import_table,
    "checkpoint": checkpoint_table,
    "launch": times_table,
    "elastic": times_table,
    "local_sgd": local_sgd_table,
    "dgc": compression_table,
    "switched_off": goals_table,
    "recommender": goals_table,
    "plan": goals_table,
    "evaluation": goals_table,
    "monitor": goals_table,
    "interop": interop_table,
    "matrix": matrix_table,
    "matrix_zh": matrix_table_zh,
}


def render(text: str, sources: Callable[[str], Path]) -> str:
    """Return the text with new figures; `sources` maps a name to its file."""

    def block(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        if name not in RENDERERS:
            raise ValueError(f"no table is known for the figures {name!r} in the text.")
        path = sources(name)
        if not path.exists():
            return f"{begin}Not measured yet.\n{end}"
        return begin + RENDERERS[name](json.loads(path.read_text())) + end

    return BLOCK.sub(block, text)


def source(name: str) -> Path:
    """Return the file with the figures of a name."""
    return ELSEWHERE.get(name, HERE / "results" / f"{name}.json")


def main() -> None:
    for page in PAGES:
        page.write_text(render(page.read_text(), source))
        print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
