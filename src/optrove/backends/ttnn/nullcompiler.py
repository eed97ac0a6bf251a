"""A compiler that compiles nothing, for kernels that never run.

ttnn builds firmware when it opens a device and kernels when it calls an op, with a RISC-V compiler
that its wheel does not ship. On a mock board the results are parsed and then dropped, so this one
serves: a shell script that writes an empty object with its dependency file, or the smallest ELF
file that ttnn's loader accepts. Being a shell script without any further process, it costs about
a millisecond per call.
"""

from __future__ import annotations

import struct

# ttnn looks for the compiler here, below its runtime root.
LOCATION = "runtime/sfpi/compiler/bin/riscv-tt-elf-g++"

# Hashed into ttnn's cache keys; raise it whenever the outputs change.
VERSION_LINE = "optrove null compiler 1"

MACHINE_RISCV = 243
R_RISCV_RELAX = 51
NOP = bytes.fromhex("13000000")
LOAD_ADDRESS = 0x1000
NAMES = (b"", b".text", b".rela.text", b".symtab", b".strtab", b".shstrtab")


def empty_program() -> bytes:
    """Return an ELF32 RISC-V executable of four no-operations.

    ttnn's loader wants one PT_LOAD segment that holds ``.text`` and starts at the entry point, and
    at least one relocation section for it ("there are no relocation sections" otherwise).
    """
    text = NOP * 4
    relocations = struct.pack("<IIi", LOAD_ADDRESS, R_RISCV_RELAX, 0)
    symbols = bytes(16) + struct.pack("<IIIBBH", 1, LOAD_ADDRESS, len(text), 0x12, 0, 1)
    strings = b"\0_start\0\0\0\0\0"
    names = b"\0".join(NAMES) + b"\0"
    names += bytes(-len(names) % 4)
    bodies = (text, relocations, symbols, strings, names)
    header_size, segment_size, section_size = 52, 32, 40
    offsets = [header_size + segment_size]
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    sections_at = offsets.pop()

    # Per section: type, flags, address, link, info, alignment, entry size.
    kinds = (
        (1, 6, LOAD_ADDRESS, 0, 0, 4, 0),
        (4, 0, 0, 3, 1, 4, 12),
        (2, 0, 0, 4, 1, 4, 16),
        (3, 0, 0, 0, 0, 1, 0),
        (3, 0, 0, 0, 0, 1, 0),
    )
    sections = bytes(section_size)
    for name, kind, offset, body in zip(NAMES[1:], kinds, offsets, bodies, strict=True):
        type_, flags, address, link, info, alignment, entry = kind
        name_at = names.index(b"\0" + name + b"\0") + 1
        sections += struct.pack(
            "<10I", name_at, type_, flags, address, offset, len(body), link, info, alignment, entry
        )
    header = b"\x7fELF\x01\x01\x01" + bytes(9)
    header += struct.pack("<HHIII", 2, MACHINE_RISCV, 1, LOAD_ADDRESS, header_size)
    header += struct.pack("<IIHHHHHH", sections_at, 0, header_size, segment_size, 1, 40, 6, 5)
    segment = struct.pack(
        "<8I", 1, offsets[0], LOAD_ADDRESS, LOAD_ADDRESS, len(text), len(text), 5, 4
    )
    return header + segment + b"".join(bodies) + sections


def compiler_script() -> str:
    """Return the shell script that stands in for the compiler.

    The dependency file of an object must name one existing file, or ttnn fails when it renames
    the file's hash; the script names itself.
    """
    program = "".join(f"\\{byte:03o}" for byte in empty_program())
    return f"""\
#!/bin/sh
# Written by optrove: stands in for the RISC-V compiler on mock boards, where no kernel ever runs.
output=
while [ $# -gt 0 ]; do
  case $1 in
    --version) echo "{VERSION_LINE}"; exit 0 ;;
    -o) output=$2; shift ;;
  esac
  shift
done
case $output in
  "") ;;
  *.elf) printf '{program}' > "$output" ;;
  *) : > "$output"; printf '%s: %s\\n' "$output" "$0" > "${{output%.*}}.d" ;;
esac
"""
