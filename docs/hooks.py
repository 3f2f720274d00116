"""What mkdocs does besides: it adds the pages of the reference, and unlinks what lies outside of docs/."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from reference import PAGES

_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)]+)\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A file of the clone is named on the site; linked where `repo_url` says where to."""
    docs = Path(config.docs_dir).resolve()
    here = (docs / page.file.src_uri).parent

    def replaced(link: re.Match[str]) -> str:
        text, target = link.groups()
        path, _, anchor = target.partition("#")
        file = (here / path).resolve()
        if file.is_relative_to(docs):
            return link[0]
        if not config.repo_url:
            return text
        address = f"{config.repo_url.rstrip('/')}/blob/main/{file.relative_to(docs.parent).as_posix()}"
        return f"[{text}]({address}{f'#{anchor}' if anchor else ''})"

    return _LINK.sub(replaced, markdown)
