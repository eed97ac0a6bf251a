"""Let the files of the example find each other, whatever import mode pytest has."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
