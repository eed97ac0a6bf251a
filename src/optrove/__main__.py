"""Run the optrove command: ``python -m optrove``."""

from optrove.cli import main

main()
