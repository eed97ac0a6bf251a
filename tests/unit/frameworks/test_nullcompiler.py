import struct
import subprocess

import pytest

from optrove.frameworks.ttnn.board.runtime import VERSION_LINE, compiler_script, empty_program


@pytest.fixture
def compiler(tmp_path):
    path = tmp_path / "riscv-tt-elf-g++"
    path.write_text(compiler_script())
    path.chmod(0o755)
    return path


def run(*arguments):
    words = [str(argument) for argument in arguments]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_the_program_is_an_elf_file_for_riscv_whose_entry_is_its_only_segment():
    program = empty_program()
    assert program[:7] == b"\x7fELF\x01\x01\x01"
    kind, machine, _, entry, segments_at = struct.unpack_from("<HHIII", program, 16)
    assert (kind, machine) == (2, 243)
    type_, offset, address, _, size = struct.unpack_from("<5I", program, segments_at)
    assert (type_, address) == (1, entry)
    assert program[offset : offset + size] == bytes.fromhex("13000000") * 4


def test_the_program_has_a_relocation_section_for_its_text():
    program = empty_program()
    sections_at = struct.unpack_from("<I", program, 32)[0]
    size, count = struct.unpack_from("<HH", program, 46)
    types = [struct.unpack_from("<I", program, sections_at + n * size + 4)[0] for n in range(count)]
    assert types == [0, 1, 4, 2, 3, 3]
    assert len(program) == sections_at + size * count


def test_the_compiler_tells_its_version_in_one_line(compiler):
    assert run(compiler, "--version") == VERSION_LINE + "\n"


def test_the_compiler_writes_the_program(compiler, tmp_path):
    output = tmp_path / "brisc.elf"
    run(compiler, "-O3", "-o", output, "brisc.o", "-Wl,-z,max-page-size=16")
    assert output.read_bytes() == empty_program()


@pytest.mark.parametrize("name", ["brisc.o", "pch.h.gch"])
def test_an_object_gets_a_dependency_file_that_names_an_existing_file(compiler, tmp_path, name):
    output = tmp_path / "a folder" / name
    output.parent.mkdir()
    run(compiler, "-c", "-o", output, "brisc.cc")
    assert output.read_bytes() == b""
    assert output.with_suffix(".d").read_text() == f"{output}: {compiler}\n"
