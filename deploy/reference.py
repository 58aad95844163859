"""Pages of the site that are made of the code: settings, role options, errors, commands, endpoints.

What a variable or an option means stands in the tables of the pages in docs, once; here it is put beside its bounds.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from celeriac import errors
from celeriac.api.problems import KINDS
from celeriac.api.server import create
from celeriac.cli import main
from celeriac.roles.options import CELERY_OPTIONS, RETRY_OPTIONS
from celeriac.roles.role import Role
from celeriac.roles.rules import RULES
from celeriac.seam.decorator import TaskOptions
from celeriac.settings import Settings
from tasks import app

ROOT = Path(__file__).parents[1]

#: Where variables are told.
TOLD = sorted((ROOT / "docs").glob("*.md"))

#: Variables of the engine that are no numbers and have no name of its own.
PLAIN = ("DATABASE_URL", "REDIS_URL", "WORKER_ID", "WORKER_ROLE")


class Told(NamedTuple):
    """A row of a table that tells of variables. `page`: by its path in the repository."""

    names: tuple[str, ...]
    default: str
    meaning: str
    page: str


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """MkDocs' hook."""
    for page, content in pages().items():
        files.append(File.generated(config, page, content=content))
    return files


def pages() -> Mapping[str, str]:
    """Markdown, by the page's place in the site. Links are those of pages in docs."""
    return {
        "settings.md": "\n".join(settings()),
        "role-options.md": "\n".join(role_options()),
        "errors.md": "\n".join(of_errors()),
        "commands.md": "\n".join(
            ["# Every command\n\n[Examples](command-line.md) show what they are for.\n", *commands(main, "celeriac")]
        ),
        "endpoints.md": "\n".join(endpoints(create(app).openapi())),
    }


def settings() -> Iterator[str]:
    numbers = {f.metadata["variable"]: f.metadata for f in fields(Settings) if f.metadata}
    told = sorted(variables(), key=lambda one: one.names)
    ours = [one for one in told if one.names[0].startswith("CELERIAC_") or one.names[0] in (*numbers, *PLAIN)]
    yield "# Settings\n\nEvery environment variable. A value that cannot be is refused by the variable's name."
    yield "\n## The engine's\n"
    yield from table(
        ("variable", "default", "may be", "meaning"),
        ((code(one.names), one.default, bounds(numbers.get(one.names[0])), link(one)) for one in ours),
    )
    yield "\n## The example application's\n"
    rest = (one for one in told if one not in ours)
    yield from table(("variable", "default", "meaning"), ((code(one.names), one.default, link(one)) for one in rest))


def variables() -> Iterator[Told]:
    for page in TOLD:
        for head, row in rows(page.read_text()):
            if head[0] == "variable":
                default = row[1] if len(head) == 3 else ""
                yield Told(tuple(re.findall(r"`(\w+)`", row[0])), default, row[-1], str(page.relative_to(ROOT)))


def rows(page: str) -> Iterator[tuple[list[str], list[str]]]:
    """Each row of each table, with the table's head."""
    head: list[str] | None = None
    for line in page.splitlines():
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells(line)
        elif not line.startswith("| --"):
            yield head, cells(line)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def link(one: Told) -> str:
    """What it means, with the page that tells more."""
    return f"{one.meaning} ([{Path(one.page).stem}]({one.page.removeprefix('docs/')}))".strip()


def bounds(number: Mapping[str, Any] | None) -> str:
    if number is None:
        return ""
    low, high = (f"{number[end] / number['scale']:.16g}" for end in ("low", "high"))
    return f"{low} to {high}{', whole' if number['whole'] else ''} ({number['unit']})"


def role_options() -> Iterator[str]:
    meaning = {
        name: row[1]
        for head, row in rows((ROOT / "docs" / "roles.md").read_text()) if head[0] == "option"
        for name in re.findall(r"`(\w+)[=`]", row[0])
    }  # fmt: skip
    yield f"# Role options\n\n{inspect.cleandoc(Role.__doc__ or '')}\n"
    own = [f for f in fields(Role) if f.name in RULES and f.name != "name"]
    yield from table(
        ("option", "default", "must be", "meaning"),
        ((f"`{f.name}`", default(f.default), RULES[f.name].right, meaning.get(f.name, "")) for f in own),
    )
    yield "\n## Retries, and Celery's own\n\nUnder Celery's names, with Celery's meaning; retries wait in SQL.\n"
    types = {name: one.__forward_arg__ for name, one in TaskOptions.__annotations__.items()}
    names = sorted((RETRY_OPTIONS | CELERY_OPTIONS) - {f.name for f in own})
    yield from table(("option", "type"), ((f"`{name}`", code([types[name]])) for name in names if name in types))


def default(given: Any) -> str:
    if isinstance(given, timedelta):
        return f"`days({given.days})`"
    return "" if given is MISSING or given in ("", None) else f"`{given!r}`"


def of_errors() -> Iterator[str]:
    tree = (errors.__doc__ or "").partition("\n\n")[2]
    yield f"# Errors\n\nAll are in `celeriac.errors`. Messages say what to do next.\n\n```text\n{tree.strip()}\n```\n"
    own = [one for one in vars(errors).values() if inspect.isclass(one) and one.__module__ == errors.__name__]
    yield from table(
        ("error", "is also", "what it says"),
        ((f"`{one.__name__}`", code(base.__name__ for base in one.__bases__), inspect.getdoc(one)) for one in own),
    )
    yield "\n## Over HTTP\n"
    yield "The `type` of a problem document is `about:blank`, or `urn:celeriac:problem:` and one of these.\n"
    yield from table(
        ("kind", "status", "what it says"), ((f"`{kind}`", str(status), says) for kind, (status, says) in KINDS.items())
    )
    yield "\nExit statuses of commands: [the command line](command-line.md#for-scripts).\n"


def commands(command: click.Command, name: str) -> Iterator[str]:
    """A command, and those below it."""
    if isinstance(command, click.Group):
        for below, one in sorted(command.commands.items()):
            yield from commands(one, f"{name} {below}")
        return
    context = click.Context(command, info_name=name)
    yield f"## {name}\n\n{inspect.cleandoc(command.help or '')}\n"
    yield f"    {' '.join([name, *command.collect_usage_pieces(context)])}\n"
    records = [found for one in command.params if (found := one.get_help_record(context))]
    yield from table(("option", "meaning"), ((f"`{option}`", says) for option, says in records))
    yield ""


def endpoints(document: Mapping[str, Any]) -> Iterator[str]:
    """Of the OpenAPI document: what `GET /openapi.json` has, as tables."""
    yield "# Every endpoint\n\nAs `GET /openapi.json` has them; how they behave tells [the API's page](api.md).\n"
    found = [(path, method, one) for path, all_ in document["paths"].items() for method, one in all_.items()]
    for tag in sorted({tag for _, _, one in found for tag in one["tags"]}):
        yield f"\n## {tag.capitalize()}\n"
        yield from table(
            ("endpoint", "scope", "what it does", "parameters", "body"),
            (
                (f"`{method.upper()} {path}`", scope(one), one.get("description", ""), *asked(one, document))
                for path, method, one in found
                if tag in one["tags"]
            ),
        )


def scope(endpoint: Mapping[str, Any]) -> str:
    return ", ".join(scope for one in endpoint.get("security", ()) for scopes in one.values() for scope in scopes)


def asked(endpoint: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[str, str]:
    """The names of its parameters, and of the fields of its body."""
    parameters = [one["name"] for one in endpoint.get("parameters", ())]
    content = endpoint.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    schema = document["components"]["schemas"].get(content.get("$ref", "").rpartition("/")[2], content)
    return code(parameters), code(schema.get("properties", ()))


def code(names: Iterable[Any]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def table(head: Sequence[str], body: Iterable[Sequence[str | None]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in body:
        yield f"| {' | '.join(cell_of(one or '') for one in row)} |"


def cell_of(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")
