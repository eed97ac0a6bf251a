import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from optrove.cli.main import main
from optrove.settings import VARIABLES

ROOT = Path(__file__).parents[2]
WITHOUT_TORCH = ROOT / "tests" / "support" / "without_torch"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
REFERENCE = (ROOT / "docs" / "command-line.md").read_text()
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
EXAMPLES = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(PYTHON.findall(page.read_text()), start=1)
]


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_and_option_is_documented(command):
    section = REFERENCE.split(f"## `optrove {command}`")[1].split("\n## ")[0]
    given = main.commands[command].params
    options = [name for each in given if isinstance(each, click.Option) for name in each.opts]
    assert [name for name in options if name not in section] == []


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)
def test_every_variable_is_documented(variable):
    assert f"`{variable.name}`" in REFERENCE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


def test_every_page_is_in_the_table_of_contents():
    contents = (ROOT / "docs" / "index.md").read_text()
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "index.md"]
    assert [name for name in pages if f"]({name})" not in contents] == []


def test_the_reference_names_modules_whose_public_names_have_docstrings():
    names = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE)
    assert {"optrove", "optrove.metrics", "optrove.sweep", "optrove.runconfig"} <= set(names)
    for module in map(import_module, names):
        found = [getattr(module, name) for name in getattr(module, "__all__", ())]
        assert [each for each in found if callable(each) and not each.__doc__] == []


@pytest.mark.ttnn
@pytest.mark.parametrize("code", EXAMPLES)
def test_the_examples_run(code, tmp_path):
    # Most do without torch, and much faster: ttnn would import it where it is installed.
    hidden = {} if "torch" in code else {"PYTHONPATH": str(WITHOUT_TORCH)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | hidden,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_front_page_shows_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
