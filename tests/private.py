"""`python -m tests.private`: what the installed Celery, kombu and their like no longer have of what the engine uses.

It searches the engine's code for what is private, undocumented or replaced; `celeriac/seam/private.py` lists it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from celeriac.seam.older import IS_OLDER
from celeriac.seam.private import RELIED_ON, Relied
from tests.processes import ROOT

#: The engine's modules by their names.
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "celeriac").rglob("*.py"))
}

FOREIGN = {"amqp", "billiard", "celery", "concurrent", "gevent", "kombu", "vine"}

#: Modules in the packages' own API references.
DOCUMENTED = {
    "billiard", "celery", "celery.app", "celery.app.amqp", "celery.app.autoretry", "celery.app.base",
    "celery.app.control", "celery.app.defaults", "celery.app.events", "celery.app.log", "celery.app.registry",
    "celery.app.task", "celery.app.utils", "celery.apps.beat", "celery.apps.worker", "celery.beat",
    "celery.bootsteps", "celery.canvas", "celery.contrib.abortable", "celery.contrib.django.task",
    "celery.contrib.pytest", "celery.contrib.testing.app", "celery.events", "celery.events.dispatcher",
    "celery.events.receiver", "celery.exceptions", "celery.loaders.app", "celery.loaders.base", "celery.result",
    "celery.schedules", "celery.signals", "celery.states", "celery.worker", "celery.worker.consumer",
    "celery.worker.consumer.consumer", "celery.worker.request", "celery.worker.state", "celery.worker.strategy",
    "celery.worker.worker", "concurrent.futures", "gevent", "gevent.monkey", "gevent.pool", "kombu", "kombu.common",
    "kombu.connection", "kombu.entity", "kombu.exceptions", "kombu.message", "kombu.messaging", "kombu.pidbox",
    "kombu.pools", "kombu.serialization", "kombu.transport.base", "kombu.transport.redis", "kombu.transport.virtual",
    "kombu.transport.virtual.base", "kombu.transport.virtual.exchange", "kombu.utils.encoding",
    "kombu.utils.functional", "kombu.utils.imports", "kombu.utils.json", "kombu.utils.url", "kombu.utils.uuid",
    "vine",
}  # fmt: skip

#: With an underscore, and documented all the same; the engine's own.
PUBLIC = {"_asdict", "_current_frames", "_exit", "_get_running_loop", "_make", "_mapping", "_replace"}
OWN = {"_has_role"}

#: Folders that have no class of Celery's; the module that only Alembic can import.
APART = {"alerts", "api", "cli", "contrib", "dashboard", "doctor", "insights", "metrics", "operate", "simulate"}
ALEMBICS = "celeriac.store.migrations.env"

REFLECTION = {"getattr", "hasattr", "setattr", "delattr"}


Found = Iterator[tuple[ast.expr | ast.stmt, str]]


class Use(NamedTuple):
    """`name`: with its module, or only `._attribute` of an object whose class the code does not say."""

    name: str
    where: str


def uses() -> Iterator[Use]:
    for module, tree in trees().items():
        yield from (Use(name, f"{module}:{node.lineno}") for node, name in of_source(tree))
    yield from overridden()


@cache
def trees() -> Mapping[str, ast.AST]:
    return {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def of_source(tree: ast.AST) -> Found:
    yield from imported(tree)
    yield from read(tree)
    yield from underscored(tree)


def bound(tree: ast.AST) -> dict[str, str]:
    """Return what names of this module stand for something of those packages, with that thing's full name."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and is_foreign(node.module or ""):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {
                a.asname or a.name: a.name for a in node.names if is_foreign(a.name) and (a.asname or "." not in a.name)
            }
    return names


def imported(tree: ast.AST) -> Found:
    """Find names imported from modules without documentation, and private ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and is_foreign(node.module or ""):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if not is_module(full) and is_undocumented(full):
                    yield node, full


def read(tree: ast.AST) -> Found:
    """Find names of modules without documentation, private ones, and whatever is replaced."""
    names = bound(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            full = f"{names[node.value.id]}.{node.attr}"
            of_module = is_module(names[node.value.id]) and not is_module(full)
            if isinstance(node.ctx, ast.Store) or (of_module and is_undocumented(full)) or is_private(node.attr):
                yield node, full


def underscored(tree: ast.AST) -> Found:
    """Find private attributes of other objects, be they read by name."""
    names = bound(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            is_self = owner in ("self", "cls") or owner.startswith("super(")
            if owner not in names and (not is_self or node.attr not in own_names()):
                yield node, f".{node.attr}"
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) in REFLECTION:
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(str(name.value)):
                yield node, f".{name.value}"


def overridden() -> Iterator[Use]:
    """Find private methods of those packages' classes that classes of ours replace, and all of undocumented ones."""
    for module in MODULES:
        if APART.isdisjoint(module.split(".")) and module != ALEMBICS:
            try:
                made = [one for one in vars(import_module(module)).values() if isinstance(one, type)]
            except ImportError as error:
                yield Use(f"{error}", module)
                continue
            yield from (Use(name, module) for one in made if one.__module__ == module for name in replaced(one))


def replaced(made: type) -> Iterator[str]:
    for name in vars(made):
        owner = next((base for base in made.__mro__[1:] if name in vars(base)), None)
        if owner is not None and is_foreign(owner.__module__) and not name.startswith("__") and name != "_abc_impl":
            full = f"{owner.__module__}.{owner.__qualname__}.{name}"
            if owner.__module__ not in DOCUMENTED or is_private(name):
                yield full


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC | OWN


def is_foreign(module: str) -> bool:
    return module.partition(".")[0] in FOREIGN


def is_undocumented(full: str) -> bool:
    module, _, name = full.rpartition(".")
    return module not in DOCUMENTED or is_private(name)


@cache
def is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, AttributeError):
        return False


@cache
def own_names() -> frozenset[str]:
    """Return what the engine defines anywhere: attributes of `self` by these names are its own."""
    names: set[str] = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return frozenset(names)


@cache
def found() -> Mapping[str, set[str]]:
    """Return where each is used, by the name that the list has for it."""
    listed = {f".{name.rpartition('.')[2]}": name for name in RELIED_ON}
    places: dict[str, set[str]] = defaultdict(set)
    for name, where in uses():
        places[listed.get(name, name) if name.startswith(".") else name].add(where)
    return places


def shape(name: str) -> str:
    """Return what the installed release has under this name, in the words of `Relied`; "gone" if nothing."""
    try:
        owner, part = None, module_of(name)
    except ModuleNotFoundError:
        return "gone"
    for attribute in name.removeprefix(part.__name__).strip(".").split("."):
        owner, part = part, part_of(part, attribute)
    if part is None:
        return "attribute" if is_set_in(owner, name.rpartition(".")[2]) else "gone"
    if inspect.isclass(part):
        return "class"
    return signature(part) if callable(part) else type(part).__name__


def module_of(name: str) -> Any:
    """Import the module that a name begins with. Raises ModuleNotFoundError if its package is not installed."""
    package, _, rest = name.partition(".")
    module = import_module(package)
    while is_module(f"{module.__name__}.{(part := rest.partition('.'))[0]}"):
        module, rest = import_module(f"{module.__name__}.{part[0]}"), part[2]
    return module


def part_of(owner: Any, attribute: str) -> Any:
    if inspect.isclass(owner):
        return next((vars(base)[attribute] for base in owner.__mro__ if attribute in vars(base)), None)
    return getattr(owner, attribute, None)


def is_set_in(owner: Any, attribute: str) -> bool:
    """Return whether the code of this module or class mentions the attribute of its instances."""
    bases = [base for base in owner.__mro__ if base is not object] if inspect.isclass(owner) else [owner]
    return any(attribute in inspect.getsource(base) for base in bases)


def signature(part: Any) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    try:
        parameters = inspect.signature(part).parameters.values()
    except ValueError:  # of a function in C
        return "callable"
    return f"({', '.join(stars.get(one.kind, '') + one.name for one in parameters)})"


def fits(name: str, expected: str) -> bool:
    """Return whether it has the shape that is listed; an attribute may have any value."""
    return shape(name) == expected or (expected == "attribute" and shape(name) != "gone")


def listed(relied: Relied) -> str:
    """Return the shape that the list has for the installed Celery."""
    return relied.before if IS_OLDER and relied.before is not None else relied.shape


def changed() -> list[str]:
    """Return a line for each that is gone or has another shape than the engine takes it for."""
    where = found()
    return [
        f"{name}: {shape(name)}, not {listed(said)}; without it: {said.breaks} ({', '.join(sorted(where[name]))})"
        for name, said in RELIED_ON.items()
        if not fits(name, listed(said))
    ]


if __name__ == "__main__":
    lines = changed()
    print("\n".join(lines) or f"All {len(RELIED_ON)} are there.")
    sys.exit(bool(lines))
