"""Texts in troves of other people stay texts: on a terminal, in Markdown, in HTML, in programs."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import commands
import troves
from optrove.model.records import Outcome, RunKind
from optrove.model.trove import Machine
from optrove.model.values import Struct, Symbol, Text
from optrove.serializer.hashes import placement_hash
from optrove.trove.place import place_of
from optrove.trove.trove import open_trove
from trove_rows import case, memory, tensor

TEXT = (
    "\x1b]52;c;cHduZWQ=\x07\x1b[2J\x1b[31mX\u202e\u2066\x9b2J\n\r\n## forged\t"
    "<img src=x onerror=alert(1)>\"'`|;$(touch PWNED) [a](javascript:alert(1)) {{7*7}} {% x %}"
    "</script><script>alert(2)</script>\n```\n<s>\n"
)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
TRACED, SWEPT = "ab" * 16, "cd" * 16
CASES = [
    *(case(op, a=tensor(32, 32), b=TEXT) for op in ("ttnn.add", f"ttnn.{TEXT}", TEXT)),
    case("ttnn.add", **{TEXT: 1}),
    case("ttnn.add", a=tensor(32, 32, dtype=TEXT)),
    case("ttnn.add", a=tensor(32, 32, layout=TEXT)),
    case("ttnn.add", a=tensor(32, 32, where=memory(f"L1_{TEXT}"))),
    case("ttnn.add", a=Struct(TEXT, ((TEXT, Text(TEXT)),)), b=Symbol(TEXT, TEXT)),
]
OUTCOMES = (Outcome.PASSED, Outcome.REJECTED, Outcome.NOT_RUN, Outcome.NUMERICS)


@pytest.fixture
def trove(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("optrove_version", "python_version", "platform", "host", "git_sha", "ttnn_version")
    words = (*words, "torch_version", "board", "arch", "device_series")
    environment = replace(troves.ENVIRONMENT, **dict.fromkeys(words, TEXT))
    facts = {"environment": environment, "source": TEXT, "model": TEXT}
    swept = troves.run_of(SWEPT, kind=RunKind.SWEEP, **facts)
    attempts = [
        troves.attempt_of(
            placement_hash(one), SWEPT, OUTCOMES[at % 4], detail=TEXT, notes=(TEXT,), board=TEXT
        )
        for at, one in enumerate(CASES)
    ]
    with open_trove(place_of("sent.db"), create=True) as trove:
        trove.add_imported(troves.imported(TRACED, *CASES, machine=Machine(TEXT, TEXT), **facts))
        trove.add_attempts(swept, attempts)
    return "sent.db"


@pytest.mark.parametrize(
    "words",
    [
        ("ops", "--all-ops"),
        ("show", "add"),
        ("show", "ttnn.add"),
        ("who", "add"),
        ("who", "add", "--by", "memory"),
        ("runs",),
        ("models",),
        ("diff", TRACED, SWEPT),
        ("results", SWEPT),
        ("report", SWEPT, "-o", "report.html"),
        ("results", "--compare", TRACED, SWEPT),
        ("vectors", "*", "-o", "vectors"),
        ("testgen", "*", "--all-ops", "-o", "made"),
        ("replay", "nothing"),
        ("rm", "cd"),
    ],
    ids=" ".join,
)
def test_a_terminal_shows_control_characters_as_escapes(trove, words):
    done = commands.run(*words, "--store", trove)
    assert not CONTROL.search(done.stdout + done.stderr)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert not Path("PWNED").exists()


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_a_report_holds_no_element_of_a_trove(trove):
    assert commands.run("report", SWEPT, "-o", "report.html", "--store", trove).exit_code == 0
    elements = Elements(Path("report.html").read_text()).found
    tags = [tag for tag, _ in elements]
    assert tags.count("script") == 1
    assert not {"img", "s", "iframe", "object", "base"} & set(tags)
    assert not [name for _, attrs in elements for name in attrs if name.startswith("on")]
    links = [attrs.get("href") or "" for _, attrs in elements]
    assert not [link for link in links if link.lower().startswith("javascript")]


def test_markdown_of_results_holds_no_heading_element_or_link_of_a_trove(trove):
    done = commands.run("results", SWEPT, "--markdown", "made.md", "--store", trove)
    assert done.exit_code == 1, done.stderr
    made = Path("made.md").read_text()
    assert "forged" in made
    assert not CONTROL.search(made)
    outside = re.sub(r"(?ms)^ *(`{3,})$.*?^ *\1$", "", made)
    outside = re.sub(r"(`+) ?.*? ?\1", "", outside)
    assert not re.search(r"(?m)^\s*#+ forged", outside)
    assert not re.search(r"(?<!\\)<(img|script|s)\b", outside)
    assert not re.search(r"(?<!\\)\]\(javascript", outside)


def test_junit_of_results_is_xml(trove):
    assert commands.run("results", SWEPT, "--junit", "made.xml", "--store", trove).exit_code == 1
    cases = ElementTree.parse("made.xml").getroot().iter("testcase")  # noqa: S314 - our own file
    assert len([*cases]) == len(CASES)


def test_files_are_written_only_where_they_were_asked_for(tmp_path, monkeypatch):
    working = tmp_path / "a" / "b"
    working.mkdir(parents=True)
    monkeypatch.chdir(working)
    swept = troves.run_of("/../../../evil", kind=RunKind.SWEEP)
    ops = ("ttnn.add", "ttnn./../../evil", "../../evil.x", "torch.ops.x/../../evil.default")
    cases = [case(op, a=tensor(32, 32)) for op in ops]
    with open_trove(place_of("sent.db"), create=True) as trove:
        trove.add_imported(troves.imported("/../../evil", *cases, machine=Machine("a", "/../x")))
        attempts = [troves.attempt_of(placement_hash(one), swept.id) for one in cases]
        trove.add_attempts(swept, attempts)
    before = {*tmp_path.rglob("*")}
    for words in (
        ("results", "--export", "out/results"),
        ("vectors", "*", "-o", "out/vectors"),
        ("testgen", "*", "--all-ops", "-o", "out/tests"),
        ("show", "add", "--svg", "out/svg"),
        ("export", "out/superset.zip", "--format", "superset"),
        ("export", "out/master.json"),
    ):
        done = commands.run(*words, "--store", "sent.db")
        assert done.exit_code in (0, 1), done.stderr
    beyond = {*tmp_path.rglob("*")} - before - {*(working / "out").rglob("*"), working / "out"}
    assert {path.name.partition("-")[0] for path in beyond} <= {"sent.db"}
    assert {path.parent for path in (working / "out" / "results").rglob("*")} == {
        working / "out" / "results"
    }
