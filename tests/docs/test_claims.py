"""What the documentation claims without exception has a test that would show one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ABSOLUTE = re.compile(r"\b(always|never|exactly|bit for bit|guarantee[sd]?)\b", re.IGNORECASE)
SHOWN_BY = {
    "long output never goes through a pager": (
        "tests/unit/cli/test_ask.py::test_nobody_has_to_press_a_key"
    ),
    "optrove never imports a module because a trove names it": (
        "tests/torch/test_targets.py::test_an_operation_of_another_library_needs_an_import"
    ),
    "They are parsed, never evaluated": (
        "tests/unit/interop/test_operator_inputs.py"
        "::test_what_is_unknown_is_kept_and_nothing_is_evaluated"
    ),
    "mesh placement; never its values": (
        "tests/unit/serializer/test_tables.py::test_live_objects_are_never_compared_or_printed"
    ),
    "it is never looked up": "tests/unit/testgen/test_hostile_files.py::test_no_part_of_a_case",
    "`from_jsonable` never evaluates, imports or looks up a name": (
        "tests/unit/testgen/test_hostile_files.py::test_nothing_of_a_hostile_file_is_called"
    ),
    "`to_jsonable` never calls `str`, `repr`, `==` or an op on a live object, and never reads": (
        "tests/unit/serializer/test_tables.py::test_live_objects_are_never_compared_or_printed"
    ),
    "Files that testgen did not write are never replaced": (
        "tests/unit/cli/test_test.py::test_replaces_its_own_files_and_no_others"
    ),
    "bfloat8_b and bfloat4_b values are kept exactly": (
        "tests/ttnn/test_capsules.py::test_every_case_passes_with_its_recorded_values"
    ),
}
"""The sentences with such a word, and the test that shows each."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_claim_without_exception_has_its_test(page):
    for line in page.read_text().splitlines():
        rest = line
        for claim in SHOWN_BY:
            rest = rest.replace(claim, "")
        assert not ABSOLUTE.search(rest), line


def test_the_tests_of_claims_are_there():
    text = "\n".join(page.read_text() for page in PAGES)
    for claim, shown_by in SHOWN_BY.items():
        assert claim in text
        file, _, name = shown_by.partition("::")
        assert f"def {name}" in (ROOT / file).read_text(), shown_by
