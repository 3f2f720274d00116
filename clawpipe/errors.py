"""The errors that clawpipe raises, with the exit code of each.

    ClawpipeError                  70
    |-- ConfigError    (ValueError)    2   the command line, a config file or a setting is wrong
    |-- NotFoundError  (LookupError)   2   a night, model version, environment or file does not exist
    |-- DataError      (ValueError)   65   data cannot be used, or an artifact is damaged
    |-- TrainingError  (RuntimeError) 70   training or evaluation failed and would fail again
    |-- BusyError      (RuntimeError) 75   try again: another night runs, memory or disk is full, a service does not answer
    `-- StoppedError                 130   the user pressed Ctrl-C

Each says what is wrong, where, and what to do, without passwords and keys (it becomes a state's message and a line of a log), and
survives pickling (Prefect moves exceptions between processes).
"""

from collections.abc import Mapping

from clawpipe.core.basics.masking import without_secrets


class ClawpipeError(Exception):
    """Base of all errors.

    Args:
        what: what is wrong, in one sentence.
        where: the file, line, field or row that is wrong.
        fix: what the reader can do about it.
    """

    exit_code = 70

    def __init__(self, what: str, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = map(without_secrets, (what, where, fix))
        super().__init__(self.what, self.where, self.fix)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f"\n  -> {self.fix}" if self.fix else ""
        return f"{place}{self.what}{remedy}"

    def as_dict(self) -> dict[str, str | int]:
        """Return the error as `--json` prints it and `error_from` reads it: of a narrower class, the name in the tree above."""
        name = next(kind.__name__ for kind in type(self).__mro__ if kind.__module__ == __name__)
        return {"error": name, "what": self.what, "where": self.where, "fix": self.fix, "exit_code": self.exit_code}


class ConfigError(ClawpipeError, ValueError):
    exit_code = 2


class NotFoundError(ClawpipeError, LookupError):
    exit_code = 2


class DataError(ClawpipeError, ValueError):
    exit_code = 65


class TrainingError(ClawpipeError, RuntimeError):
    exit_code = 70


class BusyError(ClawpipeError, RuntimeError):
    exit_code = 75


class StoppedError(ClawpipeError):
    exit_code = 130


def error_from(fields: Mapping[str, str | int]) -> ClawpipeError:
    """Return the error that `as_dict` has written, in another process."""
    kinds = {kind.__name__: kind for kind in (ConfigError, NotFoundError, DataError, TrainingError, BusyError, StoppedError)}
    return kinds.get(str(fields["error"]), ClawpipeError)(str(fields["what"]), str(fields["where"]), str(fields["fix"]))


def from_exit_code(code: int, what: str, where: str = "", fix: str = "") -> ClawpipeError:
    """Return the error for a child process's exit code; an unknown code is a TrainingError.

    A child killed by SIGKILL (-9) was most often out of memory, so it maps to BusyError: try again.
    """
    kinds = {2: ConfigError, 65: DataError, 75: BusyError, 78: ConfigError, -9: BusyError}
    return kinds.get(code, TrainingError)(what, where, fix)
