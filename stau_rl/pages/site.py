"""`python -m stau_rl.pages.site` builds the documentation site, strictly and offline, and checks every link of it.

It needs the extra `docs`. The notebooks are pages of the site, with the outputs that their files keep.
"""

import argparse
import os
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stau_rl.pages.notebook_pages import write_pages
from stau_rl.pages.paths import ROOT

# What the extra docs brings; asked for before anything is written.
NEEDED = ("mkdocs", "material", "mkdocstrings")
# What a browser loads by itself, so that it must come with the site.
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("source", "src"), ("iframe", "src")}


def main() -> None:
    """Write the notebooks' pages, build the site, and say which links lead nowhere."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.pages.site", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder of the site (default: site/)")
    found = parser.parse_args()
    out = found.out.resolve()
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        parser.error(
            f"{', '.join(missing)} missing; install the extra docs: pip install -e '.[docs]' -c constraints.txt"
        )
    try:
        write_pages()
    except ValueError as error:
        parser.error(str(error))
    sys.stderr.write("building the pages\n")
    # Whatever a plugin would fetch fails.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"})
    faults = link_faults(out)
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    if faults:
        sys.exit(1)
    pages = len(list(out.rglob("*.html")))
    sys.stdout.write(f"{pages} pages in {out}; to read them: python -m http.server --directory {out}\n")


class _Page(HTMLParser):
    """The ids and links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the ids of a tag, where it leads and whether a browser loads that by itself."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.ids.add(value)
            if (tag, name) in LOADED or (tag, name) == ("a", "href"):
                self.links.append((value, (tag, name) in LOADED))


def link_faults(site: Path) -> list[str]:
    """Links and anchors of a built site that lead nowhere, and what its pages would load from elsewhere.

    Args:
        site: folder with the built pages.

    Returns:
        A line per fault, naming the page and the link.
    """
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = _Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    faults = []
    for path, page in pages.items():
        # The page for lost visitors is served from any depth, so its links are absolute.
        for link, loaded in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if loaded and parts.scheme != "data":
                    faults.append(f"{path.relative_to(site)} loads {link} from elsewhere")
                continue
            target = path
            if parts.path:
                base = site if parts.path.startswith("/") else path.parent
                target = (base / unquote(parts.path).lstrip("/")).resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                faults.append(f"{path.relative_to(site)} links to {link}, which is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                faults.append(f"{path.relative_to(site)} links to {link}, an anchor that is not there")
    return faults


if __name__ == "__main__":
    main()
