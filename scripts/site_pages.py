"""Add the pages at the top of the repository to the site, and rewrite the links to them.

A hook of MkDocs (`mkdocs.yml`). Pages link to each other by their paths in the repository, so that
the links work there, too; here each link is rewritten to the place of its page on the site.
"""
# ruff: noqa: INP001

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = "docs"
# Where the pages at the top are on the site.
TOP: Final = {
    "README.md": "project/readme.md",
    "examples/README.md": "project/examples.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "LICENSE": "project/license.md",
}

_LINK: Final = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages at the top into the navigation."""
    pages = [{_title(name): place} for name, place in TOP.items() if (ROOT / name).exists()]
    config.nav.append({"Project": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the top of the repository."""
    from mkdocs.structure.files import File

    for name, place in TOP.items():
        if (ROOT / name).exists():
            text = (ROOT / name).read_text(encoding="utf-8")
            if name == "LICENSE":
                text = f"# Licence\n\n```text\n{text}```\n"
            files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(
    markdown: str,
    page: Page,
    config: MkDocsConfig,  # noqa: ARG001
    files: Files,  # noqa: ARG001
) -> str:
    """Rewrite the links of a page to their places on the site."""
    here = page.file.src_uri
    origin = {place: name for name, place in TOP.items()}.get(here, f"{DOCS}/{here}")

    def turned(found: re.Match[str]) -> str:
        target = found[2]
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        if meant in (DOCS, f"{DOCS}/"):
            meant = f"{DOCS}/README.md"
        place = TOP.get(meant) or meant.removeprefix(f"{DOCS}/")
        leads = posixpath.relpath(place, posixpath.dirname(here) or ".")
        return f"{found[1]}{leads}{found[3]}"

    return _outside_fences(markdown, turned)


def _outside_fences(markdown: str, turned: object) -> str:
    """Apply a change of links to everything but examples."""
    parts = re.split(r"(^`{3,}.*?^`{3,}[ ]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if number % 2 else _LINK.sub(turned, part)  # type: ignore[call-overload]
        for number, part in enumerate(parts)
    )


def _title(name: str) -> str:
    return {
        "README.md": "Overview",
        "examples/README.md": "Examples",
        "CHANGELOG.md": "Changes",
    }.get(name, name.removesuffix(".md").capitalize())
