"""What MkDocs calls as it builds the site (mkdocs.yml): pages that do not lie in docs, links that lead out of it."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from celeriac.alerts.rules import RULES, Rule
from celeriac.metrics.prometheus import UNSEEN, alert_name

ROOT = Path(__file__).parents[1]

#: By their path in the repository.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "deploy/kubernetes/README.md": "kubernetes.md",
}
WITHIN = {page: path for path, page in OUTSIDE.items()}

RUNBOOKS = {rule.name: rule for rule in (*RULES, *UNSEEN)}

LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    uri = page.file.src_uri
    if uri.startswith("runbooks/") and (rule := RUNBOOKS.get(page.file.name)):
        markdown = re.sub(r"(?<=\n)", f"\n{alert(rule)}\n", markdown, count=1)
    return LINK.sub(lambda found: linked(found, uri, files), markdown)


def alert(rule: Rule) -> str:
    """What is said of each: by the name it has in Prometheus it is searched for."""
    return f"*{rule.severity}, of {rule.of}; `{alert_name(rule)}` in Prometheus*"


def linked(found: re.Match[str], uri: str, files: Files) -> str:
    """A link to a page of the site, or a file's path in the repository. What is neither MkDocs refuses."""
    own = WITHIN.get(uri, f"docs/{uri}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(own), found["target"]))
    page = OUTSIDE.get(path, path.removeprefix("docs/"))
    if files.get_file_from_path(page) and path != page:
        leads = posixpath.relpath(page, posixpath.dirname(uri) or ".")
        return f"[{found['text']}]({leads}{found['anchor'] or ''})"
    if (ROOT / path).exists():
        return f'<span title="{path}">{found["text"]}</span>'
    return found[0]
