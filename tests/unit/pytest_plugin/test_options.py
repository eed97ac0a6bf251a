from optrove import pytest_plugin, settings

# What alone asks for nothing.
ONLY_TUNES = {
    "CI",
    "OPTROVE_NUMERICS",
    "OPTROVE_CACHE",
    "OPTROVE_SIM",
    "PIP_INDEX_URL",
    "OPTROVE_STORE",
    "HF_MODEL",
    "TT_SMI_RESET_COMMAND",
    "RAY_ADDRESS",
    "TTNN_MASTER_JSON_PATH",
    "TTNN_OPERATION_TRACE_DIR",
}


def test_the_plugin_knows_every_variable_that_asks_for_a_part():
    names = {variable.name for variable in settings.VARIABLES}
    assert set(pytest_plugin.VARIABLES) == names - ONLY_TUNES
