"""Pass a vector file through the code of a checkout of tt-metal: CHECKOUT, FILE, OUTPUT.

OUTPUT has the vectors of FILE as that code reads them, and as it writes them again, and the verdict
of its ``execute_test`` on the module beside FILE.
"""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

checkout, file, output = map(Path, sys.argv[1:4])
sys.path[:0] = [str(checkout / "tests" / "sweep_framework"), str(checkout)]

from framework.serialize import (  # noqa: E402 - its directory is known only now
    deserialize_vector_structured,
    serialize_structured,
)
from framework.vector_source import FileVectorSource  # noqa: E402
from sweep_utils.perf_utils import execute_test  # noqa: E402

FACTS = ("sweep_name", "suite_name", "input_hash", "traced_source", "traced_machine_info")
MORE = ("timestamp", "tag", "validity", "invalid_reason", "status")

spec = spec_from_file_location("mine", file.with_name("mine.py"))
module = module_from_spec(spec)
spec.loader.exec_module(module)
document, verdicts = {}, []
for vector in FileVectorSource(str(file)).load_vectors("mine"):
    passed = {name: item for name, item in vector.items() if name not in (*FACTS, *MORE)}
    live = deserialize_vector_structured(passed)
    verdicts.append(execute_test(module, live, "a device")[:2])
    again = {name: serialize_structured(item) for name, item in live.items()}
    facts = {name: vector[name] for name in vector if name in (*FACTS, *MORE)}
    document.setdefault(vector["suite_name"], {})[vector["input_hash"][:8]] = {
        **again,
        **facts,
        "tag": "somebody",
    }
output.write_text(json.dumps({"document": document, "verdicts": verdicts}))
