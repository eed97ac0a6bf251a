import pytest

from optrove.model.case import Case
from optrove.model.torch_target import TorchTarget, device_pair, is_device
from optrove.model.values import Int, List, Null, Struct, TensorSpec, Text, TorchPlacement

TARGETS = [
    TorchTarget(),
    TorchTarget("cuda:1"),
    TorchTarget(None, (("cuda", "cpu"), ("xpu:0", "meta"))),
    TorchTarget("cpu", (), "inductor", ("torchvision", "my.ops")),
    TorchTarget(None, (), "aot_eager"),
]


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_text_of_a_target_means_the_target(target):
    assert TorchTarget.parse(target.text) == target


def test_the_default_target_has_no_text():
    assert TorchTarget().text is None
    assert str(TorchTarget("cuda", (), "inductor")) == "cuda, compiled by inductor"


def test_a_target_is_spelled_as_options():
    target = TorchTarget("cpu", (("cuda", "cpu"),), "inductor", ("a", "b"))
    assert target.options() == [
        *("--device", "cpu", "--compile", "inductor", "--map", "cuda=cpu"),
        *("--import", "a", "--import", "b"),
    ]


def spec(device):
    return TensorSpec((2,), "torch.float32", TorchPlacement((1,), "strided", device, False), 0, 0)


def device(kind, index=None):
    number = Null() if index is None else Int(index)
    return Struct("torch.device", (("index", number), ("type", Text(kind))))


@pytest.mark.parametrize(
    ("target", "placed"),
    [
        (TorchTarget(), ("cuda:0", "cpu")),
        (TorchTarget("meta"), ("meta", "meta")),
        (TorchTarget(None, (("cuda", "cpu"),)), ("cpu", "cpu")),
        (TorchTarget(None, (("cuda:0", "xpu:1"),)), ("xpu:1", "cpu")),
        (TorchTarget("meta", (("cuda", "cpu"),)), ("cpu", "meta")),
    ],
)
def test_recorded_devices_are_replaced(target, placed):
    case = Case("torch.ops.aten.add.Tensor", (("a", spec("cuda:0")), ("b", List((spec("cpu"),)))))
    first, second = placed
    assert target.placed(case) == Case(case.op, (("a", spec(first)), ("b", List((spec(second),)))))


def test_device_arguments_are_replaced():
    case = Case("torch.ops.aten.ones.default", (("device", device("cuda", 0)),))
    found = TorchTarget("xpu:1").placed(case)
    assert dict(found.arguments)["device"] == device("xpu", 1)


@pytest.mark.parametrize("text", ["cuda", "=cpu", "cuda=", "CUDA=cpu", "cuda=c p u"])
def test_other_forms_are_no_pairs_of_devices(text):
    with pytest.raises(ValueError, match="cuda=cpu"):
        device_pair(text)


def test_devices_have_a_form():
    assert [is_device(text) for text in ("cpu", "cuda:0", "privateuseone", "cuda:", "", "--x")] == [
        *[True] * 3,
        *[False] * 3,
    ]
