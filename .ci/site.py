"""What the site of docs/ needs beside mkdocs.yml: links that leave docs/ lead to the
repository, and pages that the navigation does not name are added to it."""

import os
import re
from pathlib import Path

REPOSITORY = "https://github.com/millpond-go/millpond/blob/main/"
LINK = re.compile(r"(\]\()(\.\./[^)\s#]*)(#[^)\s]*)?\)")


def on_config(config):
    folder = Path(config.docs_dir)
    named = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    rest = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.md"))
    rest = [p for p in rest if p not in named]
    decisions = [p for p in rest if p.startswith("decisions/")]
    sections = {name: pages for section in config.nav if isinstance(section, dict) for name, pages in section.items()}
    sections["Contribute"][-1]["Decisions"] = decisions
    sections["Look up"] += [p for p in rest if p not in decisions]
    return config


def on_page_markdown(markdown, page, config, files):
    folder = os.path.dirname(page.file.src_uri)

    def outside(link):
        target = os.path.normpath(os.path.join("docs", folder, link.group(2)))
        if target.startswith("docs/"):
            return link.group(0)
        return f"{link.group(1)}{REPOSITORY}{target}{link.group(3) or ''})"

    return LINK.sub(outside, markdown)
