"""The command `fleetx evaluate`: vectors of a saved model, and whether an endpoint agrees.

Exit status: 0 if everything agrees (or nothing was compared), 1 if the endpoint differs, 2 if the
evaluation could not be done.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fleetx.runtime.argument_types import count, seconds

if TYPE_CHECKING:
    from fleetx.evaluation.evaluate import Result


def add(commands: Any) -> None:
    """Add the command to those of `fleetx`."""
    parser = commands.add_parser(
        "evaluate",
        help="compute evaluation vectors and compare an endpoint with them",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, help="the saved model: a file, its prefix, its folder")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="samples: .npy, .npz or .safetensors with one row each; or a folder with pictures and "
        "val.txt, or such a list",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="INPUT=ARRAY",
        help="which array of the file is an input of the model, if the names differ",
    )
    parser.add_argument(
        "--resize_short_size", type=count, help="of photographs: their short side (256 for 224)"
    )
    parser.add_argument("--mean", type=_colours, help="of photographs: R,G,B (ImageNet's)")
    parser.add_argument("--std", type=_colours, help="of photographs: R,G,B (ImageNet's)")
    parser.add_argument("--limit", type=count, help="use the first samples only")
    parser.add_argument("--out", type=Path, help="write the vectors to this .safetensors file")
    parser.add_argument("--jobs", type=count, default=1, help="processes (default 1)")
    parser.add_argument("--batch", type=count, default=64, help="samples at a time (default 64)")
    _add_endpoint(parser)
    _add_comparison(parser)
    parser.set_defaults(command=run)


def _add_endpoint(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("endpoint")
    group.add_argument("--against", metavar="URL", help="the endpoint, such as http://host:8000")
    group.add_argument(
        "--adapter",
        default="raw",
        help="raw (default) or json of `fleetx serve`, kserve, or a Python file, module or "
        "module:object with encode(inputs) -> (body, headers) and decode(body) -> outputs",
    )
    group.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="sent with requests"
    )
    group.add_argument(
        "--api_key_file", type=Path, help="a file with the key that `fleetx serve` requires"
    )
    group.add_argument(
        "--timeout", type=seconds, default=30.0, help="seconds for a request (default 30)"
    )
    group.add_argument("--retries", type=int, default=3, help="more attempts (default 3)")
    group.add_argument(
        "--request", type=count, default=32, help="samples per request at most (default 32)"
    )
    group.add_argument(
        "--connections", type=count, default=2, help="concurrent requests per process (default 2)"
    )


def _add_comparison(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("comparison")
    group.add_argument(
        "--tolerance",
        action="append",
        default=[],
        metavar="[OUTPUT=]ATOL[,RTOL]",
        help="maximum error of a number: ATOL + RTOL x the sample's largest; for one output or "
        "all (default 1e-5,1e-5; float16 1e-3,1e-2; integers 0)",
    )
    group.add_argument(
        "--previous",
        type=Path,
        action="append",
        default=[],
        metavar="MODEL",
        help="another saved model that the endpoint might serve; reported if it does",
    )
    group.add_argument("--show", type=count, default=10, help="differing samples (default 10)")
    group.add_argument("--report", type=Path, help="write a report of the comparison (HTML)")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command; return its exit status."""
    from fleetx.checkpoint import FormatError
    from fleetx.evaluation.evaluation_error import EvaluationError

    try:
        result = _evaluate(arguments, console)
        _print(result, arguments.out, console)
        if arguments.report is not None:
            from fleetx.evaluation.html_report import write_report

            write_report(arguments.report, result)
            console.print(f"Report: {arguments.report}", markup=False, soft_wrap=True)
    except (EvaluationError, FormatError, OSError, ModuleNotFoundError) as error:
        # Status 1 would mean that the endpoint differs.
        Console(stderr=True).print(f"fleetx: {error}", style="red", markup=False, soft_wrap=True)
        return 2
    return 0 if result.same else 1


def _evaluate(arguments: argparse.Namespace, console: Console) -> Result:
    from fleetx.evaluation.evaluate import Request, evaluate
    from fleetx.evaluation.samples import open_samples
    from fleetx.serving.model import load_model

    endpoint = _endpoint(arguments)
    tolerances = _tolerances(arguments.tolerance)
    names = dict(_pair(text, "--input") for text in arguments.input)
    model = load_model(arguments.model)
    unknown = set(tolerances.by_name) - {spec.name for spec in model.outputs}
    if unknown:
        known = ", ".join(spec.name for spec in model.outputs)
        _refuse(f"--tolerance names {min(unknown)!r}, but the model's outputs are {known}.")
    pictures = {name: getattr(arguments, name) for name in ("resize_short_size", "mean", "std")}
    with open_samples(
        arguments.data, model.inputs, names=names, limit=arguments.limit, pictures=pictures
    ) as samples:
        request = Request(
            model=arguments.model,
            samples=samples,
            endpoint=endpoint,
            out=arguments.out,
            tolerances=tolerances,
            jobs=arguments.jobs,
            batch=arguments.batch,
            show=arguments.show,
            previous=arguments.previous,
        )
        with _bar(console) as bar:
            task = bar.add_task("samples", total=len(samples))
            return evaluate(request, model=model, progress=lambda rows: bar.advance(task, rows))


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _endpoint(arguments: argparse.Namespace) -> Any:
    from fleetx.evaluation.endpoint import EndpointSettings

    if arguments.against is None:
        if arguments.report is not None:
            _refuse("--report needs a comparison; pass the endpoint with --against.")
        return None
    headers = dict(_pair(text, "--header") for text in arguments.header)
    if arguments.api_key_file is not None:
        headers["X-API-Key"] = arguments.api_key_file.read_text().strip()
    return EndpointSettings(
        url=arguments.against,
        adapter=arguments.adapter,
        timeout=arguments.timeout,
        retries=max(0, arguments.retries),
        request_rows=min(arguments.request, arguments.batch),
        connections=arguments.connections,
        headers=headers,
    )


def _tolerances(texts: Sequence[str]) -> Any:
    from fleetx.evaluation.comparison import Tolerance, Tolerances

    by_name, others = {}, None
    for text in texts:
        name, _, numbers = text.rpartition("=")
        try:
            atol, _, rtol = numbers.partition(",")
            tolerance = Tolerance(float(atol), float(rtol or 0))
        except ValueError as error:
            _refuse(f"--tolerance {text!r}: {error}; write 1e-4, OUTPUT=1e-4 or OUTPUT=1e-4,1e-3.")
        if name:
            by_name[name] = tolerance
        else:
            others = tolerance
    return Tolerances(by_name, others)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        _refuse(f"{option} {text!r}: write NAME=VALUE.")
    return name, value


def _refuse(problem: str) -> NoReturn:
    from fleetx.evaluation.evaluation_error import EvaluationError

    raise EvaluationError(problem)


def _print(result: Result, out: Path | None, console: Console) -> None:
    from fleetx.evaluation.wording import describe, lines

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    say(
        f"{result.model}, version {result.version}: {result.samples} samples in "
        f"{result.seconds:.1f} s"
    )
    if out is not None:
        say(f"Vectors: {out}")
    comparison = result.comparison
    if comparison is None:
        return
    for statistics in comparison.outputs.values():
        for line in lines(statistics):
            say(line)
    for number, each in enumerate(comparison.first):
        if number == 0:
            say("First samples that differ:")
        say("  " + describe(each))
    for problem in comparison.problems:
        say(f"  {problem}")
    if result.same:
        say(f"SAME: {result.url} answers as the saved model does.", "bold green")
        for note in result.notes:
            say(note)
    else:
        say(
            f"DIFFERENT: {comparison.differing_rows} of {comparison.rows} samples of {result.url}.",
            "bold red",
        )
    if result.diagnosis is not None:
        say(result.diagnosis.sentence)
        for note in result.diagnosis.notes:
            say(f"  {note}")


def _colours(text: str) -> tuple[float, ...]:
    values = tuple(float(part) for part in text.split(","))
    if len(values) != 3:
        raise argparse.ArgumentTypeError(f"{text!r} is not R,G,B: three numbers")
    return values
