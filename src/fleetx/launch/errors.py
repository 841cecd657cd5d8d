"""What ends a launch before or between its workers: one sentence and an exit code."""


class LaunchError(Exception):
    """A launch that cannot go on; its text is the one sentence the user reads."""

    def __init__(self, sentence: str, code: int = 2) -> None:
        super().__init__(sentence)
        self.code = code


class StopRequest(Exception):
    """Somebody asked for the end: Ctrl-C or a signal, known by its number."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by signal {signum}")
        self.signum = signum
