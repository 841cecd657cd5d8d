"""Options of a script."""

import argparse


def add_arguments(
    name: str, kind: type, default: object, help: str, argparser: argparse.ArgumentParser
) -> None:
    """Add the option --name, which may be left out."""
    argparser.add_argument(f"--{name}", type=kind, default=default, help=f"{help} ({default})")
