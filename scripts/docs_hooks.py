"""What the site adds to docs/: the files outside of it that pages link to, code as pages, the rest as it is."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(\.\./([^)#\s]+)")
FOLDER = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Enrol every linked file of the repository under its own path."""
    for target in sorted({t for page in files.documentation_pages() for t in outside(page)}):
        source = ROOT / target
        if not source.is_file():
            continue  # the link stays as it is, and mkdocs warns
        told = {"inclusion": InclusionLevel.NOT_IN_NAV}
        if source.suffix == ".py":
            text = f"# {source.name}\n\n```python\n{source.read_text()}```\n"
            files.append(File.generated(config, place(target), content=text, **told))
        else:
            files.append(File.generated(config, target, abs_src_path=str(source), **told))
    return files


def on_page_markdown(markdown: str, page, config: MkDocsConfig, files: Files) -> str:
    """Links of pages in docs/ lead to the copies on the site; a folder has no page, so that its name stays and the link goes."""
    if "/" in page.file.src_uri:
        return markdown
    markdown = FOLDER.sub(lambda m: m[1] if (ROOT / m[2]).is_dir() else m[0], markdown)
    return LINK.sub(lambda m: f"]({place(m[1])}" if (ROOT / m[1]).is_file() else m[0], markdown)


def outside(page: File) -> list[str]:
    """Paths, from the top of the repository, that a page of docs/ links to outside of it."""
    return [] if "/" in page.src_uri else LINK.findall(page.content_string)


def place(target: str) -> str:
    """Where a file of the repository is on the site."""
    return target.removesuffix(".py") + ".md" if target.endswith(".py") else target
