import pytest

from optrove.interop.machines import (
    EPOCH,
    board_of,
    model_of,
    moment_of,
)
from optrove.model.trove import Machine


@pytest.mark.parametrize(
    ("series", "cards", "board"),
    [
        ("n150", 1, "n150"),
        ("n300", 1, "n300"),
        ("N300", 4, "t3k"),
        ("tt-galaxy-wh", 32, "galaxy"),
        ("tt-galaxy-bh", 32, "bh-galaxy"),
        ("p150b", 1, "p150"),
        ("something", 1, None),
        (None, None, None),
    ],
)
def test_a_board_is_known_by_its_series(series, cards, board):
    assert board_of(Machine(device_series=series, card_count=cards)) == board


def test_a_machine_comes_back_as_it_was_written():
    machine = Machine("Wormhole", "n300", 1, 2, (1, 2), (0, 1), (("tt_kmd", '"2.3.0"'),))
    assert Machine.of(machine.data()) == machine
    assert machine.data()["tt_kmd"] == "2.3.0"
    assert Machine.of(Machine().data()) == Machine()
    several = {"device_series": ["n300", "n300"]}
    assert Machine.of(several).device_series == "n300"
    assert Machine.of(several).data() == several


@pytest.mark.parametrize(
    ("name", "written", "known"),
    [
        ("mesh_device_shape", "[2, 1]", (2, 1)),
        ("mesh_device_shape", "(2, 1)", (2, 1)),
        ("device_ids", None, None),
    ],
)
def test_a_row_of_numbers_may_be_written_as_text(name, written, known):
    assert getattr(Machine.of({name: written}), name) == known


@pytest.mark.parametrize(
    "odd",
    [{"card_count": -1}, {"mesh_device_shape": "odd"}, {"device_ids": [-1]}, {"board_type": 5}],
)
def test_a_fact_of_another_type_is_kept_as_it_is_written(odd):
    assert Machine.of(odd).data() == odd


@pytest.mark.parametrize(
    ("source", "model"),
    [
        ("demo.py [HF_MODEL:meta-llama/Llama-3.2-1B]", "meta-llama/Llama-3.2-1B"),
        ("demo.py", None),
        ("test_net[device_params0]", None),
    ],
)
def test_a_source_names_its_model(source, model):
    assert model_of(source) == model


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-08 13:48:13", "2026-03-08T13:48:13.000000Z"),
        ("2026-03-08T13:48:13+02:00", "2026-03-08T11:48:13.000000Z"),
        ("2026-07-24", "2026-07-24T00:00:00.000000Z"),
        ("yesterday", EPOCH),
        (None, EPOCH),
        ("0001-01-01T00:00:00+14:00", EPOCH),
    ],
)
def test_a_time_is_the_same_wherever_it_is_read(text, moment):
    assert moment_of(text) == moment
