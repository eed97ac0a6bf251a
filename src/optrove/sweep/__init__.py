"""Traced configurations for sweep modules: ``MasterConfigLoader`` and the unpacking functions.

from optrove.sweep import MasterConfigLoader, unpack_traced_config

loader = MasterConfigLoader()
parameters = {"model_traced": loader.get_suite_parameters("sigmoid_accurate")}

def run(input_shape=None, ..., traced_config_name=None, *, device):
    if traced_config_name:
        input_shape, dtype, layout, memory, output_memory = unpack_traced_config(
            traced_config_name
        )
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.errors import NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from optrove.sweep.traced import TracedConfiguration

__all__ = [
    "MasterConfigLoader",
    "unpack_binary_traced_config",
    "unpack_traced_config",
    "unpack_traced_tensors",
]


class MasterConfigLoader:
    """Load the traced configurations of ops, as parameters of a suite.

    ``path`` is a trove (a file or a URL) or a master file of tt-metal, version 1 or 2. The default
    is TTNN_MASTER_JSON_PATH, then the default trove.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = path

    def get_suite_parameters(
        self,
        operation_name: str,
        all_cases: bool = False,  # noqa: FBT001, FBT002 - tt-metal's modules pass it so
        *,
        arity: int | None = None,
    ) -> dict[str, list[Any]]:
        """Return the parameters of a suite; for an op that was never traced, ``{}`` with a warning.

        By default these are the names of the traced configurations with distinct inputs. With
        ``all_cases`` they are lists of live values, of which a sweep runs every combination.
        Configurations with another number of tensors than most are left out, and counted in the
        log; ``arity`` selects those with that many tensors.
        """
        from optrove.replay.sweep_module import every_combination
        from optrove.sweep.traced import configurations_of, every_value, write_name

        found = configurations_of(self.path, operation_name, arity)
        if not found.kept:
            return {}
        if all_cases or every_combination.get():
            return every_value(found)
        return {"traced_config_name": [write_name(traced) for traced in found.kept]}


def unpack_traced_config(name: str) -> tuple[Any, Any, Any, Any, Any]:
    """Return shape, dtype, layout and memory config of the input, and the output's memory config.

    If the call did not pass a memory config for its output, the last value is that of the input.
    """
    from optrove.sweep.traced import live, live_tensor

    traced = _read(name, 1, "unpack_traced_config")
    shape, dtype, layout, memory = live_tensor(traced.tensors[0])
    output = memory if traced.output is None else live(traced.output)
    return shape, dtype, layout, memory, output


def unpack_binary_traced_config(name: str) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
    """Return the shape, both dtypes, both layouts and both memory configs of two inputs.

    If the shapes of the inputs differ, the first item is ``{"self": shape, "other": shape}``.
    """
    from optrove.sweep.traced import live_tensor, shapes

    traced = _read(name, 2, "unpack_binary_traced_config")
    first, second = map(live_tensor, traced.tensors)
    return shapes(traced), first[1], second[1], first[2], second[2], first[3], second[3]


def unpack_traced_tensors(name: str) -> list[tuple[Any, Any, Any, Any]]:
    """Return shape, dtype, layout and memory config of each input, however many."""
    from optrove.sweep.traced import live_tensor, read_name

    return [live_tensor(tensor) for tensor in read_name(name).tensors]


def _read(name: str, arity: int, function: str) -> TracedConfiguration:
    from optrove.sweep.traced import read_name

    traced = read_name(name)
    found = len(traced.tensors)
    if found != arity:
        functions = {1: "unpack_traced_config", 2: "unpack_binary_traced_config"}
        raise NotFound(
            f"{function} takes calls with {arity} tensor{'s' * (arity > 1)}, and this call of "
            f"{traced.op} has {found}; use {functions.get(found, 'unpack_traced_tensors')}"
        )
    return traced
