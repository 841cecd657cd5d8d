"""Options of scripts, under the names of the documents."""

import argparse
from typing import Any


def _truth(text: str) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in words:
        raise argparse.ArgumentTypeError(f"{text!r} is neither True nor False")
    return words[text.lower()]


def add_arguments(
    argname: str,
    type: Any,
    default: Any,
    help: str,
    argparser: argparse.ArgumentParser,
    **kwargs: Any,
) -> None:
    """Add the option --argname; one of type bool is written --argname True."""
    argparser.add_argument(
        f"--{argname}",
        default=default,
        type=_truth if type is bool else type,
        help=f"{help} Default: %(default)s.",
        **kwargs,
    )


def print_arguments(args: argparse.Namespace) -> None:
    """Print the options and their values, a line each."""
    print("-----------  Configuration Arguments -----------")
    for name, value in sorted(vars(args).items()):
        print(f"{name}: {value}")
    print("------------------------------------------------")
