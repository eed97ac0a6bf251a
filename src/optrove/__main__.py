"""Run the optrove command: ``python -m optrove``."""

from optrove.cli.main import main

main()
