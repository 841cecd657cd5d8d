"""Arguments of the documents' evaluation program."""


def add_arguments(name, kind, default, help, argparser):
    """Add an option that may be left out."""
    argparser.add_argument("--" + name, default=default, type=kind, help=help)
