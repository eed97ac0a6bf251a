"""Load a master file with tt-metal's loader, and print all vectors as JSON by operation.

python tt_metal_loader.py CHECKOUT MASTER OUTPUT
"""

import json
import sys
from pathlib import Path


def main(checkout, master, output):
    """Write the vectors: one object per vector, with the text of each value."""
    import ttnn

    sys.path.insert(0, str(checkout))
    from tests.sweep_framework.master_config_loader_v2 import MasterConfigLoader

    loader = MasterConfigLoader(str(master))
    vectors = {}
    for op in json.loads(master.read_text())["operations"]:
        ((names, rows),) = loader.get_suite_parameters(op).items()
        vectors[op] = [
            {
                name: shown(ttnn, value)
                for name, value in zip(names.split(","), row, strict=True)
                if value != "__ABSENT__"
            }
            for row in rows
        ]
    output.write_text(json.dumps(vectors))


def shown(ttnn, value):
    """Return a value as JSON; live objects of ttnn as their text."""
    if isinstance(value, tuple | list):
        return [shown(ttnn, item) for item in value]
    if isinstance(value, dict):
        return {key: shown(ttnn, item) for key, item in value.items()}
    if isinstance(value, ttnn.MemoryConfig):
        return f"{value}"
    return value if isinstance(value, str | int | float | None) else repr(value)


if __name__ == "__main__":
    main(*(Path(argument).resolve() for argument in sys.argv[1:]))
