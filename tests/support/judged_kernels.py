"""What a replay says of the outputs of ttnn's kernels: ``judged_kernels.py TRUTH ARCH``.

Each case of a truth (see ``tests/truth/README.md``) runs on a mock board, with its kernel's outputs
as the numbers of its result. The output is JSON: the faults that are found in each case.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import optrove

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from bench_numerics import BOARDS, Runner, read_cases

MOVING = ("ttnn.to_torch", "ttnn.from_torch", "ttnn.to_device", "ttnn.from_device")


class KernelOutputs:
    """Gives the calls of a case the outputs of its kernel, and judges the result."""

    def __init__(self, ttnn, torch):
        from optrove.frameworks.ttnn.signatures import Signatures

        self._ttnn, self._torch, self._signatures = ttnn, torch, Signatures()
        self.outputs = None
        self.faults = None
        self._is_judging = False
        fast = ttnn.decorators.FastOperation
        self._call = fast.__call__

        def call(operation, *arguments, **keywords):
            return self._run(operation, arguments, keywords)

        fast.__call__ = call

    def _run(self, operation, arguments, keywords):
        from optrove.frameworks.ttnn.shadow.shadow import is_shadow_call

        plain = self._is_judging or is_shadow_call() or self.outputs is None
        if plain or operation.python_fully_qualified_name in MOVING:
            return self._call(operation, *arguments, **keywords)
        self._is_judging = True
        try:
            return self._judged(operation, arguments, keywords)
        finally:
            self._is_judging = False

    def _judged(self, operation, arguments, keywords):
        from optrove.frameworks.ttnn.execute.comparing import OutputComparison
        from optrove.frameworks.ttnn.shadow.shadow import set_shadow_mirror, shadow_mirror
        from optrove.model.case import Case

        case = Case(operation.python_fully_qualified_name, ())
        comparison = OutputComparison(
            self._ttnn, self._torch, self._signatures, case, runs_kernels=True
        )
        tensors = comparison.outputs.golden.tensors
        for tensor in tensors((arguments, keywords)):
            if comparison.mirrors.on_device(tensor):
                comparison.mirrors.set(tensor, shadow_mirror(self._ttnn, tensor))
        comparison.prepare(operation, arguments, keywords)
        result = self._call(operation, *arguments, **keywords)
        shapes = [output.size for output in self.outputs]
        found = list(tensors(result))[: len(shapes)]
        if [tensor.logical_volume() for tensor in found] != shapes:
            return result  # a step on the way
        for tensor, output in zip(found, self.outputs, strict=True):
            set_shadow_mirror(self._ttnn, tensor, self._mirror(comparison, tensor, output))
        compared = comparison.compare(operation, result)
        self.faults = [
            fault for each in compared if each.judged is not None for fault in each.judged.faults
        ]
        return result

    def _mirror(self, comparison, tensor, output):
        from optrove.frameworks.ttnn.shadow.host_mirrors import HostMirror
        from optrove.frameworks.ttnn.shadow.transfers import shadow_calls

        values = self._torch.from_numpy(output.reshape(tuple(tensor.shape)))
        with shadow_calls():
            return HostMirror((comparison.outputs.golden.pack(values, tensor),))


def main():
    truth, arch = Path(sys.argv[1]), sys.argv[2]
    with optrove.mock_board(BOARDS[arch], shadow=True, numerics="ideal"):
        import torch
        import ttnn

        device = ttnn.open_device(device_id=0, l1_small_size=24576)
        kernels, runner = KernelOutputs(ttnn, torch), Runner(ttnn, torch, device)
        found = {}
        for case in read_cases(truth, arch):
            kernels.outputs, kernels.faults = case.outputs, None
            runner.run(case)
            found[case.manifest["id"]] = kernels.faults
        kernels.outputs = None
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
