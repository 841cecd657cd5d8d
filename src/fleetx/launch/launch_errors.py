"""Errors that end a launch, each with one sentence and an exit code."""


class LaunchError(Exception):
    """An error that ends the launch; its text is the sentence shown to the user."""

    def __init__(self, sentence: str, code: int = 2) -> None:
        super().__init__(sentence)
        self.code = code


class NotReachedError(LaunchError):
    """The first machine of a job did not answer in time."""


class StopRequest(Exception):
    """A request to stop: Ctrl-C or a signal, identified by its number."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by signal {signum}")
        self.signum = signum
