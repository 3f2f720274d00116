"""Find an extension by name: a built-in one, one that an installed package declares, or one in a Python file of the user's.

Environments, scorers, importers, engines and losses are all named alike:

    shop                    a built-in one, or an entry point of the group `clawpipe.environments` in an installed package
    path/to/file.py:NAME    a class or function in a file of the user's
    module:NAME             the same in a module that can be imported
    family:WORD             where an extension point has families: the family's class, whose first argument is WORD
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from clawpipe.core.store.plain_digests import sha256_bytes, sha256_file, sha256_plain
from clawpipe.core.system.machine import USERS_MODULE
from clawpipe.errors import ClawpipeError, ConfigError, NotFoundError


class Place(NamedTuple):
    """Where an extension is defined: in `file`, or in the module `module` where that is None."""

    module: str
    member: str
    file: Path | None = None
    version: str = ""  # of the package that declares it as an entry point


@dataclass(frozen=True)
class ExtensionPoint:
    """One kind of extension, and the setting that names one.

    Attributes:
        kind: what it is called in messages; packages declare theirs in the entry-point group of its plural, `clawpipe.<kind>s`.
        setting: the setting or option that names one, for messages.
        built_in: `module:NAME` by name.
        members: attributes that a made one must have.
        families: `module:NAME` by the word before the colon, of names whose rest is the first argument.
    """

    kind: str
    setting: str
    built_in: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    members: tuple[str, ...] = ()
    families: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    @property
    def group(self) -> str:
        """The group of entry points in which packages declare theirs."""
        return f"clawpipe.{self.kind}{'es' if self.kind.endswith(('s', 'x')) else 's'}"

    def names(self) -> list[str]:
        """Return the names that need no path: the built-in ones and those of installed packages."""
        return sorted({*self.built_in, *(point.name for point in entry_points(group=self.group))})

    def family(self, name: str) -> str | None:
        """Return the family that a name belongs to."""
        family, colon, _ = name.partition(":")
        return family if colon and family in self.families else None

    def place(self, name: str) -> Place:
        """Return where `name` is defined, without importing it.

        Raises:
            NotFoundError: nothing has this name, or no such file.
        """
        if name in self.built_in:
            return _place(self.built_in[name])
        if family := self.family(name):
            return _place(self.families[family])
        if is_reference(name):
            return self._place_of_reference(name)
        for point in entry_points(group=self.group, name=name):
            return _declared(point)
        known = ", ".join(self.names())
        raise NotFoundError(f"no {self.kind} {name!r}", self.setting, f"use {known + ', or ' if known else ''}path/to/file.py:NAME")

    def load(self, name: str) -> Any:
        """Return the class, function or object that `name` stands for.

        Raises:
            NotFoundError: nothing has this name, no such file or module, or it does not define the name.
            ConfigError: the file or module raises when it is imported.
        """
        place = self.place(name)
        module = import_file(place.file, self._fix) if place.file else self._import(place.module)
        if not hasattr(module, place.member):
            where = str(place.file or place.module)
            raise NotFoundError(f"no {place.member!r} in it", where, f"{self._fix}; defined there: {_definitions(module)}")
        return getattr(module, place.member)

    def prepared(self, name: str, options: Mapping[str, Any], *arguments: Any) -> Callable[[], Any]:
        """Return a call that makes what `name` stands for. Raises as `make`, but for what making it raises."""
        factory = self.load(name)
        if not callable(factory):
            raise ConfigError(f"no {self.kind}: it is neither a class nor a function", name, self._fix)
        if self.family(name):
            arguments = (name.partition(":")[2], *arguments)
        self._require_options(name, factory, options, arguments)
        return partial(factory, *arguments, **options)

    def make(self, name: str, options: Mapping[str, Any], *arguments: Any) -> Any:
        """Call what `name` stands for with `arguments` and `options`.

        Raises:
            NotFoundError: see `load`.
            ConfigError: it cannot be called, does not take these options, raises, or makes something that lacks `members`.
        """
        call = self.prepared(name, options, *arguments)
        try:
            made = call()
        except (ClawpipeError, MemoryError):
            raise
        except Exception as error:
            if name in self.built_in:  # ours: an error of the machine, say, which others know how to tell
                raise
            raise ConfigError(f"it cannot be made: {in_one_line(error)}", name, "run it with python first") from error
        if missing := [member for member in self.members if not hasattr(made, member)]:
            raise ConfigError(f"no {self.kind}: it has no {', '.join(missing)}", name, "see docs/extending.md")
        return made

    def source_digest(self, name: str) -> str:
        """Return the digest of the source of `name` with its imports: of a user's file, the modules that are no installed
        library's.

        Raises:
            NotFoundError: nothing has this name, or no such file or module.
        """
        from clawpipe.core.store.source import FIRST_PARTY, code_digest, file_digest  # which a user's Python need not have

        place = self.place(name)
        if place.file is None and place.module.partition(".")[0] in FIRST_PARTY:
            return code_digest(place.module)
        digest = file_digest(self.file(name))
        return sha256_plain([digest, place.version]) if place.version else digest

    def file(self, name: str) -> Path:
        """Return the file that defines `name`; its parent packages are imported, the module is not.

        Raises:
            NotFoundError: nothing has this name, or no such file or module.
        """
        place = self.place(name)
        return place.file or self._origin(place.module)

    @property
    def _fix(self) -> str:
        return f"{self.setting} is a known name, path/to/file.py:NAME or module:NAME"

    def _place_of_reference(self, name: str) -> Place:
        place = _place(name)
        if not place.member.isidentifier():
            raise NotFoundError(f"no {self.kind} {name!r}", self.setting, self._fix)
        if place.file is not None and not place.file.is_file():
            raise NotFoundError("no such file", str(place.file), self._fix)
        return place

    def _require_options(self, name: str, factory: Callable[..., Any], options: Mapping[str, Any], given: tuple[Any, ...]) -> None:
        signature = inspect.signature(factory)
        try:
            signature.bind(*given, **options)
        except TypeError as error:
            takes = ", ".join(list(signature.parameters)[len(given) :]) or "none"
            where = f"{self.setting.removesuffix('.name')}.options"
            raise ConfigError(f"{name} does not take these options: {error}", where, f"it takes {takes}") from None

    def _import(self, module: str) -> ModuleType:
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise NotFoundError(f"no such module: {error}", module, self._fix) from error
        except Exception as error:
            raise ConfigError(f"it does not import: {in_one_line(error)}", module, "import it with python first") from error

    def _origin(self, module: str) -> Path:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            spec = None
        if spec is None or not spec.origin or not Path(spec.origin).is_file():
            raise NotFoundError("no such module", module, self._fix)
        return Path(spec.origin)


def is_reference(name: str) -> bool:
    """Whether a name says where the extension is defined, as `path/to/file.py:NAME` or `module:NAME`."""
    return ":" in name


def file_of(reference: str) -> Path | None:
    """Return the file that a reference names; None where it names a module."""
    path = reference.rpartition(":")[0]
    return Path(path).expanduser().resolve() if path.endswith(".py") or "/" in path else None


def _place(reference: str) -> Place:
    module, _, member = reference.rpartition(":")
    return Place(module, member, file_of(reference))


def _declared(point: EntryPoint) -> Place:
    return Place(point.module, point.attr, version=f"{point.dist.name} {point.dist.version}" if point.dist else "")


def _definitions(module: ModuleType) -> str:
    """Return the names of the public classes and functions that a module defines."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return ", ".join(name for name in own if not name.startswith("_")) or "none"


def import_file(file: Path, fix: str) -> ModuleType:
    """Import a user's file under a name that holds its digest, so that an edited file is imported again.

    Modules beside the file can be imported, unless an installed one has their name.

    Args:
        file: an absolute path.
        fix: what an error says about naming it.

    Raises:
        ConfigError: the file does not import.
    """
    name = f"{USERS_MODULE}{sha256_bytes(str(file).encode())[:8]}_{sha256_file(file)[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError("not a Python file", str(file), fix)
    module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    sys.modules[name] = module  # dataclasses look their module up while the class is made
    try:
        with _no_bytecode():
            spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        where, what = _failed_at(file, error)
        raise ConfigError(f"it does not import: {what}", where, "run it with python first") from error
    return module


class CallError(Exception):
    """What a user's code raised before, or in another process; the message says where, a subclass's name what was raised."""

    @classmethod
    def named(cls, name: str, message: str) -> CallError:
        """Return the error of a class with this name."""
        return type(name, (cls,), {})(message)


def in_one_line(error: BaseException) -> str:
    """Return an error in one line: class, message and place, like `ZeroDivisionError: division by zero (my_env.py, line 31)`.

    Half a surrogate pair, as in the name of a file, is escaped: UTF-8 cannot express it, and the line may be stored.
    """
    message = " ".join(_message(error).encode(errors="backslashreplace").decode().split())
    if isinstance(error, CallError):
        return f"{type(error).__name__}{': ' if message[:1] != '(' else ' '}{message}"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{': ' if message else ''}{message}{place}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # of a user's class, whose `__str__` raises as well
        return ""


@contextmanager
def _no_bytecode() -> Generator[None]:
    """Write nothing beside the user's files, not even for a plan."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _failed_at(file: Path, error: Exception) -> tuple[str, str]:
    """Return `file:line` of the user's source at which an import failed, and the error in one line."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}", f"{type(error).__name__}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = f":{frames[-1].lineno}" if frames else ""
    return f"{file}{line}", f"{type(error).__name__}: {' '.join(str(error).split())}"
