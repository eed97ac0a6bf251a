from types import SimpleNamespace

import pytest

from optrove.frameworks.ttnn.shadow.expected_outputs import written
from optrove.frameworks.ttnn.signatures import Signatures, read_stub

PLAIN = (
    r"def __call__(self, input: a.Tensor, dim: int, ready: list[a.Semaphore], *, links: int = \0)"
)
BUFFERED = (
    r"def __call__(self, input: a.Tensor, persistent_buffer: a.Tensor | None = \0, dim: int, "
    r"ready: Mapping[str, a.Semaphore], *, cluster_axis: int | None = \1) -> a.Tensor"
)
LINE = (
    r"def __call__(self, input: a.Tensor, dim: int, cluster_axis: int, ready: a.Semaphore) -> None"
)
GATHER = (PLAIN, BUFFERED, LINE)


def operation(*stubs):
    """An op that carries its signature as nanobind keeps it."""

    class Function:
        def __call__(self):
            raise NotImplementedError

    Function.__call__.__nb_signature__ = tuple((stub, None, ()) for stub in stubs)
    return SimpleNamespace(python_fully_qualified_name="ttnn.op", function=Function())


@pytest.mark.parametrize(
    ("arguments", "keywords", "bound"),
    [
        (("t", 3, "s"), {}, {"input": "t", "dim": 3, "ready": "s"}),
        (("t", 3, 1, "s"), {}, {"input": "t", "dim": 3, "cluster_axis": 1, "ready": "s"}),
        (("t", "b", 1, "s"), {}, {"input": "t", "persistent_buffer": "b", "dim": 1, "ready": "s"}),
        (("t", 3, 1), {"ready": "s"}, {"input": "t", "dim": 3, "cluster_axis": 1, "ready": "s"}),
        (
            ("t",),
            {"dim": 3, "ready": "s", "cluster_axis": 1},
            {"input": "t", "dim": 3, "ready": "s", "cluster_axis": 1},
        ),
        (("t", 3), {"wrong": 1}, {"wrong": 1}),
        ((), {}, {}),
    ],
)
def test_arguments_get_the_names_of_the_overload_they_fit(arguments, keywords, bound):
    assert Signatures().bind(operation(*GATHER), arguments, keywords) == bound


def test_a_stub_says_which_parameters_are_required():
    overload = read_stub(BUFFERED)
    assert overload.positional == ("input", "persistent_buffer", "dim", "ready")
    assert overload.names == {*overload.positional, "cluster_axis"}
    assert overload.required == {"input", "dim", "ready"}
    assert read_stub("def nothing() -> None").names == frozenset()


def test_an_op_without_a_signature_has_its_keywords_only():
    bare = SimpleNamespace(python_fully_qualified_name="ttnn.bare", function=lambda: None)
    assert Signatures().bind(bare, (1,), {"dim": 2}) == {"dim": 2}
    assert Signatures().parameters(bare) == frozenset()


def test_what_an_op_may_write_to_is_known_by_its_parameters():
    parameters = Signatures().parameters(operation(*GATHER))
    assert written("ttnn.op", parameters) == {"persistent_buffer"}
    statistics = frozenset({"input", "running_mean", "running_var"})
    assert written("ttnn.batch_norm", statistics) == {"running_mean", "running_var"}
    assert written("ttnn.other", statistics) == frozenset()
