"""The straight code of an example computes what the model computes."""

import json

import pytest

from commands import ask
from example_runs import EXAMPLES
from forked_python import python
from recorded_calls import cases_of, results_of

pytestmark = [pytest.mark.ttnn, pytest.mark.torch, pytest.mark.slow]

COMPARED = """
import json, sys
import optrove

sys.path[:0] = [{program!r}, {encoder!r}]
with optrove.mock_board("n300", shadow=True):
    import program, reference, test_encoder, ttnn, weights

    expected = reference.encoder(weights.make_input(), weights.make_weights())
    device = ttnn.open_device(device_id=0)
    own = ttnn.to_torch(test_encoder.run(device, {variant!r}, ttnn.bfloat8_b))
    ttnn.close_device(device)
    print(json.dumps([reference.pcc(expected, each.float()) for each in (own, program.main())]))
"""


@pytest.mark.parametrize("variant", ["interleaved", "sharded"])
def test_the_pcc_of_the_program_is_that_of_the_model(tmp_path, variant):
    path = tmp_path / "trove.db"
    test = f"{EXAMPLES / 'encoder' / 'test_encoder.py'}::test_pcc_with_torch[bfloat8_b-{variant}]"
    words = ("--board", "n300", "--shadow", "--flow", "--capsule", "all", "--store", path)
    ask("trace", test, *words)
    (run,) = ask("runs", "--store", path, "--json")
    program = tmp_path / "program.py"
    ask("testgen", "--sequence", run["run_id"], "-o", program, "--store", path)
    example = str(EXAMPLES / "encoder")
    text = COMPARED.format(program=str(tmp_path), encoder=example, variant=variant)
    done = python("-c", text, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    own, found = json.loads(done.stdout)
    assert own > 0.999
    assert found == pytest.approx(own, abs=1e-12)
    again = tmp_path / "again.db"
    ask("trace", program, "--board", "n300", "--store", again)
    assert cases_of(again) == cases_of(path)


def test_the_program_of_llama_on_two_chips_computes_what_the_model_computes(tmp_path):
    path, again = tmp_path / "trove.db", tmp_path / "again.db"
    test = f"{EXAMPLES / 'llama' / 'test_llama.py'}::test_prefill_agrees_with_torch[bfloat8_b]"
    board = ("--board", "n300", "--shadow")
    ask("trace", test, *board, "--flow", "--capsule", "all", "--store", path)
    (run,) = ask("runs", "--store", path, "--json")
    program = tmp_path / "program.py"
    ask("testgen", "--sequence", run["run_id"], "-o", program, "--store", path)
    ask("trace", program, *board, "--capsule", "to_torch", "--store", again)
    expected = cases_of(path)
    assert len(expected) > 400
    assert cases_of(again)[-len(expected) :] == expected
    assert len(results_of(again)) > 3
    assert results_of(again) == results_of(path)
