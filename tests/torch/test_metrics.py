import numpy as np
import pytest
import torch

from metric_cases import every_case
from optrove import metrics

pytestmark = pytest.mark.torch


@every_case
def test_every_case_has_its_answers(expected, actual, pcc, error, close):
    double = None
    if any(isinstance(item, float) for item in np.ravel(expected).tolist()):
        double = torch.float64
    elif any(isinstance(item, complex) for item in np.ravel(expected).tolist()):
        double = torch.complex128
    one = torch.tensor(expected, dtype=double)
    two = torch.tensor(actual, dtype=double)
    assert metrics.pcc(one, two) == pytest.approx(pcc, abs=1e-7)
    assert metrics.max_abs_error(one, two) == pytest.approx(error)
    assert metrics.allclose(one, two) is close
    assert (metrics.ulp(one, two) == 0.0) is (error == 0.0)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [(torch.bfloat16, 7), (torch.float16, 10), (torch.float32, 23), (torch.float8_e4m3fn, 3)],
)
def test_one_ulp_after_one_is_the_last_bit(dtype, bits):
    one = torch.tensor([1.0]).to(dtype)
    after = torch.tensor([1.0 + 2.0**-bits]).to(dtype)
    assert metrics.ulp(one, after) == 1.0
    assert metrics.ulp(after, one) == 1.0
    assert metrics.ulp(one, torch.tensor([1.0 + 2.0 ** -(bits + 1)], dtype=torch.float64)) == 0.5


def test_ulp_of_bfloat16_is_the_distance_of_the_bits():
    bits = torch.arange(0, 0x7F80, 7, dtype=torch.int32).to(torch.int16)
    values = bits.view(torch.bfloat16)
    zero = torch.zeros(1, dtype=torch.bfloat16)
    for index in range(0, len(values), 97):
        assert metrics.ulp(zero, values[index : index + 1]) == float(bits[index])


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.uint16, torch.uint32, torch.int64, torch.bool]
)
def test_whole_numbers_of_any_width_are_compared(dtype):
    one, two = torch.tensor([0, 1]).to(dtype), torch.tensor([0, 0]).to(dtype)
    assert metrics.pcc(one, one) == 1.0
    assert metrics.max_abs_error(one, two) == metrics.ulp(one, two) == 1.0


def test_other_dtypes_and_frameworks_are_compared_with_one_another():
    numbers = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert metrics.pcc(numbers, numbers.to(torch.bfloat16)) == 1.0
    assert metrics.pcc(numbers.numpy(), numbers) == 1.0
    assert metrics.pcc(numbers, numbers.tolist()) == 1.0
    assert metrics.max_abs_error(torch.tensor(1.0), 1.5) == 0.5
    assert metrics.max_abs_error(torch.tensor([1j]), torch.tensor([1.0])) == pytest.approx(2**0.5)


def test_views_gradients_and_conjugates_are_compared_by_their_numbers():
    numbers = torch.arange(12.0, requires_grad=True).reshape(3, 4)
    assert metrics.pcc(numbers.T, numbers.T.contiguous()) == 1.0
    number = torch.tensor([1 + 2j, 3 - 1j])
    assert metrics.max_abs_error(number.conj(), torch.tensor([1 - 2j, 3 + 1j])) == 0.0


def test_pcc_agrees_with_numpy():
    generator = torch.Generator().manual_seed(0)
    one = torch.randn(64, 64, generator=generator)
    two = one + 0.1 * torch.randn(64, 64, generator=generator)
    true = np.corrcoef(one.double().flatten(), two.double().flatten())[0, 1]
    assert metrics.pcc(one, two) == pytest.approx(true, abs=1e-14)
