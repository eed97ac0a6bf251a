"""What the name of an operation may reach: the only place that decides.

Names come from recordings and from files of other people, and what they name is called: by a
replay, or by a generated program. So a name reaches operations only: those in ttnn's registry,
listed methods and functions, and torch's operations. It never leads to another module that a
framework has imported (``ttnn.os``), to a class, a private name, or a function for files.

``refusal`` judges a name by its parts alone, for programs that are written where the framework may
be missing; tests compare it with everything that the installed releases have.
``ttnn_operation`` and ``torch_operation`` find the live object.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from operator import attrgetter
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotReplayable
from optrove.frameworks.installed import is_loaded
from optrove.frameworks.torch.probe import GETTERS, OWN_SPACES, is_operation
from optrove.frameworks.ttnn.probe.probe import METHODS, registered

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

OPERATIONS: Final = "torch.ops."
HIGHER_ORDER: Final = "torch.ops.higher_order."
TORCH_METHODS: Final = "torch.Tensor."
TTNN_METHODS: Final = "ttnn.Tensor."

FILES: Final = frozenset({"from_file", "load", "load_tensor", "save"})
"""Operations of torch that read or write files, which a replay must not touch."""

UNLISTED: Final = frozenset({"torch.autograd.backward", "torch.autograd.grad"})
"""Functions of torch that can be overridden but are missing in its list."""

FUNCTIONS: Final = frozenset(
    {
        "ttnn.create_group_norm_weight_bias_rm",
        "ttnn.create_layer_norm_reciprocals",
        "ttnn.global_avg_pool2d",
        "ttnn.prepare_conv_bias",
        "ttnn.prepare_conv_transpose2d_bias",
        "ttnn.prepare_conv_transpose2d_weights",
        "ttnn.prepare_conv_weights",
        "ttnn.prepare_grid_sample_grid",
    }
)
"""Functions of ttnn that make tensors but are not registered as operations."""

_SPACES: Final = frozenset(
    {
        "ttnn",
        "ttnn.experimental",
        "ttnn.experimental.ccl",
        "ttnn.experimental.deepseek",
        "ttnn.experimental.deepseek.mla",
        "ttnn.experimental.deepseek.moe",
        "ttnn.experimental.deepseek_prefill",
        "ttnn.experimental.kda",
        "ttnn.experimental.quasar",
        "ttnn.experimental.quasar.transformer",
        "ttnn.kv_cache",
        "ttnn.prim",
        "ttnn.transformer",
    }
)
"""The modules of ttnn that hold operations."""

_SPECIAL: Final = frozenset({"ttnn.Tensor.__getitem__", "ttnn.dump_tensor", "ttnn.load_tensor"})
"""Operations whose names look like those of other functions."""

_OTHERS: Final = re.compile(
    r"(attach|auto|begin|cb|close|command|compute|corerange|create|determine|disable|distributed?"
    r"|dump|enable|end|event|execute|fabric|get|has|init|light_metal|load|manage|num_cores"
    r"|open|prepare|query|record|register|release|replicate_tensor|reset|save|set|setup"
    r"|shard_tensor|split_work|start|stop|tracy|using|visualize|wait)_\w+"
    r"|\w+_(addresses|compute_config|composer|config_serialization|mapper|program_factory)"
    r"|is_(sharded|tensor_storage_on_device|trace_capture_active)"
    r"|(aggregate|combine_device)_tensors?|apply_device_delay|distribute|element_size"
    r"|dram_group_norm_params_from_torch|synchronize_device"
    r"|from_host_shards|grid_to_cores|ispkg|logger|merge_program_descriptors|name|rgb_to_yuv"
    r"|root_dir|this_dir|tile_size|ttnn_dtype_to_torch_dtype|yuv_\w+"
    r"|u?int\d+|bfloat\w+|float32|fp8_\w+"
    # Modules that ttnn imports, and its own.
    r"|builtins|cluster|comparison|config_serialization|contextlib|core|decorators|device"
    r"|disaggregation|distributed|experimental_loader|functools|graph|graph_report|importlib|inspect|io|json"
    r"|operation_tracer|operations|os|pathlib|pickle|pkgutil|profiler|reflection|runpy|shutil"
    r"|stack_trace_source|submodule|subprocess|sys|tempfile|tools|torch|torch_tracer|tracer"
    r"|ttnn|types"
)
"""The names in ttnn's own module that are no operations."""

_OTHER_EXPERIMENTAL: Final = re.compile(
    r"create_prefetcher_pipe_space|rgb_to_yuv|yuv_\w+|disaggregation|fabric_mux|layer_completion"
    r"|moe_compute_utils|reload|tensor_prefetcher_matmul"
)

_NAME: Final = re.compile(r"[a-z][A-Za-z0-9_]*")
_PART: Final = re.compile(r"_?[A-Za-z][A-Za-z0-9_]*")
_OPERATOR: Final = re.compile(r"__i?(and|or|xor|lshift|rshift)__")
_NOT_SPACES: Final = frozenset(
    {"import_module", "load_library", "loaded_libraries", "prim", "profiler"}
    | {"builtins", "ctypes", "importlib", "os", "posix", "runpy", "shutil", "subprocess", "sys"}
)
"""What ``torch.ops`` has besides namespaces of operations that compute, and modules of Python."""

_DISPATCHED: Final = 5
"""The parts of ``torch.ops.SPACE.NAME.OVERLOAD``."""

_MAX_CHARS: Final = 200


def refusal(op: str) -> str | None:
    """Return why a program must not call what ``op`` names; None if it names an operation.

    Only the name is judged. Whether an installed framework has the operation is not known.
    """
    framework = op.partition(".")[0]
    if framework not in ("ttnn", "torch"):
        return f"{shown(op)} names no operation of ttnn or torch"
    why = _too_long(op) or (_of_ttnn(op) if framework == "ttnn" else _of_torch(op))
    return None if why is None else f"{shown(op)} names no operation of {framework}: {why}"


def written_refusal(op: str) -> str | None:
    """Return why a generated program must not call ``op``; None if it may.

    ttnn is not imported for it, since the board is chosen with that. Where it is loaded, a name of
    something else in this release is refused, too.
    """
    why = refusal(op)
    if why is None and op.startswith("torch.") and not op.startswith(OPERATIONS):
        # Such a name may lead to any function of torch.
        return f"{op}: tests are written of the dispatcher's operations: trace with --level aten"
    if why is not None or not op.startswith("ttnn.") or not is_loaded("ttnn"):
        return why
    ttnn, operations = _loaded()
    leads_elsewhere = _walk_ttnn(ttnn, op.split(".")) is not None
    if leads_elsewhere and ttnn_operation(ttnn, operations, op) is None:
        return (
            f"{shown(op)} names no operation of ttnn: the loaded release has something else there"
        )
    return None


def shown(op: str) -> str:
    """Return a name in quotes for a message, without what a terminal would act on."""
    return ascii(op if len(op) <= _MAX_CHARS else f"{op[:_MAX_CHARS]}...")


def _too_long(op: str) -> str | None:
    return f"it is longer than {_MAX_CHARS} letters" if len(op) > _MAX_CHARS else None


def _of_ttnn(op: str) -> str | None:
    space, _, last = op.rpartition(".")
    if op in FUNCTIONS | _SPECIAL or (space == "ttnn.Tensor" and last in METHODS):
        return None
    if space == "ttnn.Tensor":
        return f"{shown(last)} is not a method that computes or moves a tensor"
    if space not in _SPACES:
        return f"{shown(space)} holds no operations"
    others = {"ttnn": _OTHERS, "ttnn.experimental": _OTHER_EXPERIMENTAL}.get(space)
    if not _NAME.fullmatch(last):
        return f"{shown(last)} is a class, private, or not a name"
    if op in _SPACES or (others is not None and others.fullmatch(last)):
        return f"{shown(last)} is a module or another function"
    return None


def _of_torch(op: str) -> str | None:
    parts = op.split(".")
    for part in parts:
        if not _PART.fullmatch(part) and not _is_special(op, part):
            return f"{shown(part)} is private, or not a name"
    if FILES & set(parts):
        return "it reads or writes a file, which a replay does not touch"
    if op.startswith(HIGHER_ORDER):
        return "it calls functions that are its arguments, not only tensors"
    if not op.startswith(OPERATIONS):
        return None
    if len(parts) > len(("torch", "ops")) and parts[2] in _NOT_SPACES:
        return f"{shown(parts[2])} is no namespace of operations"
    if len(parts) != _DISPATCHED or parts[4].startswith("_"):
        return "it is not of the form torch.ops.SPACE.NAME.OVERLOAD"
    return None


def _is_special(op: str, part: str) -> bool:
    """Return whether a part with underscores on both sides is an operation's name."""
    if op.startswith(TORCH_METHODS):
        return op == TORCH_METHODS + part and part.isascii() and part.isidentifier()
    return op.startswith(OPERATIONS) and _OPERATOR.fullmatch(part) is not None


@lru_cache(maxsize=1)
def _loaded() -> tuple[Any, Mapping[str, Any]]:
    """Return the loaded ttnn, and its operations by name."""
    ttnn: Any = sys.modules["ttnn"]
    return ttnn, operations_of(ttnn)


def operations_of(ttnn: ModuleType) -> dict[str, Any]:
    """Return the registered operations by name."""
    return {each.python_fully_qualified_name: each for each in registered(ttnn)}


def ttnn_operation(ttnn: Any, operations: Mapping[str, Any], op: str) -> Any:
    """Return the operation, listed method or function of a loaded ttnn; None if it is none."""
    if op in operations:
        return operations[op]
    live = _walk_ttnn(ttnn, op.split("."))
    if op.startswith(TTNN_METHODS):
        return live if op.removeprefix(TTNN_METHODS) in METHODS else None
    if isinstance(live, _kinds(ttnn)):
        return live
    return live if op in FUNCTIONS and isinstance(live, FunctionType) else None


def _kinds(ttnn: Any) -> tuple[type, ...]:
    return ttnn.decorators.FastOperation, ttnn.decorators.Operation


def _walk_ttnn(ttnn: Any, parts: list[str]) -> Any:
    """Follow a name through ttnn's own modules; None if it leads elsewhere."""
    live: Any = ttnn if parts[0] == "ttnn" else None
    for part in parts[1:]:
        if part.startswith("_") or not part.isascii() or not _is_own(live, ttnn):
            return None
        live = getattr(live, part, None)
        if live is ttnn:  # its modules import it; no operation has such a name
            return None
    return live


def _is_own(live: Any, ttnn: Any) -> bool:
    """Return whether names may be looked up in an object: a module of ttnn, or ttnn.Tensor."""
    if live is ttnn.Tensor:
        return True
    if isinstance(live, ModuleType):
        return live.__name__.partition(".")[0] == "ttnn"
    # In some releases, namespaces are plain objects of ttnn's own classes.
    own = type(live).__module__.partition(".")[0] == "ttnn"
    return own and not isinstance(live, (type, *_kinds(ttnn)))


def torch_operation(torch: Any, overridable: Collection[Any], op: str) -> Any:
    """Return the operation ``op`` of a loaded torch; NotReplayable if there is none.

    ``overridable`` are the functions that torch lists as such.
    """
    why = refusal(op)
    if why is not None:
        raise NotReplayable(why)
    last = op.rpartition(".")[2]
    live = _walk_torch(torch, op.split("."))
    if op.startswith(OPERATIONS) and isinstance(live, torch._ops.OpOverload):  # noqa: SLF001 - this class has no public name
        return live
    if op.startswith(TORCH_METHODS) and last in GETTERS:
        return attrgetter(last)
    listed = _is_in(live, overridable) or op in UNLISTED
    if not (listed or _is_builtin(torch, op, last)) or not is_operation(last):
        space = op.split(".")[2] if op.startswith(OPERATIONS) else "aten"
        hint = "" if space in OWN_SPACES else "; --import MODULE imports what registers it"
        raise NotReplayable(f"the installed torch has no operation called {op}{hint}")
    return live


def _walk_torch(torch: Any, parts: list[str]) -> Any:
    """Follow a name through torch's modules and ``torch.Tensor``; None if it leads elsewhere."""
    live: Any = torch
    namespaces = (torch._ops._OpNamespace, torch._ops.OpOverloadPacket)  # noqa: SLF001 - these classes have no public name
    for part in parts[1:]:
        own = isinstance(live, ModuleType) and live.__name__.partition(".")[0] == "torch"
        if not (own or live is torch.Tensor or isinstance(live, namespaces)):
            return None
        live = getattr(live, part, None)
        if live is torch:
            return None
    return live


def _is_builtin(torch: Any, op: str, last: str) -> bool:
    """Return whether a name is an ATen function; those that create tensors are only there."""
    builtins = torch._C._VariableFunctions  # noqa: SLF001 - the class that holds them all
    return op == f"torch.{last}" and not last.startswith("_") and last in dir(builtins)


def _is_in(live: Any, known: Collection[Any]) -> bool:
    try:
        return live in known
    except TypeError:  # it has no hash, so it is not among them
        return False
