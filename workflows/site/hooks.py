"""What mkdocs adds to docs/: the README as the first page, a page for each method, and the files that pages link to.

Pages in docs/ link to files of the repository by relative paths (`../results/reference/...`), so that they also work
where the repository itself is read. Here such a file becomes a part of the site.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from eval.method_pages.page import render

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = "results/reference"
# A link, and its target: [text](target) or ![text](target), with an anchor or without.
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not in docs/."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=LINK.sub(_from_root, readme)))
    for name, content in render().items():
        path = "catalogue/index.md" if name == "README.md" else f"catalogue/{name}"
        files.append(File.generated(config, path, content=content))
    pages = [readme, *(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))]
    linked = {match.group(1).removeprefix("../") for text in pages for match in LINK.finditer(text)}
    reference = {path.relative_to(ROOT).as_posix() for path in (ROOT / REFERENCE).rglob("*")}
    for path in sorted(linked | reference):
        if (ROOT / path).is_file() and not path.startswith("docs/"):
            files.append(File.generated(config, f"tree/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that leave docs/ point to the copies in the site."""
    return markdown if page.file.src_uri == "index.md" else LINK.sub(_from_docs, markdown)


def _from_docs(match: re.Match[str]) -> str:
    target, anchor = match.group(1), match.group(2) or ""
    if not target.startswith("../"):
        return match.group(0)
    path = target.removeprefix("../")
    if method := re.fullmatch(r"methods/catalogue/(\w+)\.py", path):
        return f"catalogue/{method.group(1)}.md{anchor}"
    return f"tree/{path}{anchor}"


def _from_root(match: re.Match[str]) -> str:
    target, anchor = match.group(1), match.group(2) or ""
    if "://" in target:
        return match.group(0)
    return f"{target.removeprefix('docs/')}{anchor}" if target.startswith("docs/") else f"tree/{target}{anchor}"
