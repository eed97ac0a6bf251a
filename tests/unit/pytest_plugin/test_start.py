from types import SimpleNamespace

import pytest

from optrove.pytest_plugin import start


def test_an_interrupt_while_the_board_is_prepared_shows_no_traceback(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(start, "_start_board", interrupt)
    options = SimpleNamespace(results_csv=None)
    manager = SimpleNamespace(register=lambda *_: None)
    config = SimpleNamespace(
        known_args_namespace=options,
        pluginmanager=manager,
        invocation_params=SimpleNamespace(dir=None),
    )
    monkeypatch.delenv("TT_TEST_RESULTS_CSV", raising=False)
    with pytest.raises(SystemExit) as ended:
        start.start(config)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "optrove: interrupted while the board was prepared\n"
