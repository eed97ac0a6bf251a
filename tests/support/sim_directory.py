"""A directory for OPTROVE_SIM without a simulator, and a ttnn package that pins its compiler."""

VERSION_FILE = """\
# sfpi release 7.89.0

sfpi_repo='https://github.com/tenstorrent/sfpi'
sfpi_version='7.89.0'
sfpi_hashtype='sha256'
sfpi_x86_64_debian_txz_hash='d00d'
sfpi_x86_64_fedora_txz_hash='f00d'
"""


def fake_package(directory, text=VERSION_FILE):
    """Make the parts of an installed ttnn that name its compiler."""
    (directory / "tt_metal").mkdir(parents=True)
    (directory / "tt_metal" / "sfpi-version").write_text(text)
    return directory


def fake_simulator(directory, *libraries, version="7.89.0"):
    """Make a compiler that tells its version, and empty chip libraries."""
    compiler = directory / "sfpi" / "compiler" / "bin" / "riscv-tt-elf-g++"
    compiler.parent.mkdir(parents=True)
    line = f"riscv-tt-elf-g++ (tenstorrent/sfpi:{version}[1050]) 15.1.0"
    compiler.write_text(f"#!/bin/sh\necho '{line}'\n")
    compiler.chmod(0o755)
    for name in libraries:
        (directory / name).touch()
    return directory
