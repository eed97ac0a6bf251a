import importlib
import importlib.machinery
import importlib.resources
import importlib.util
import inspect
import pkgutil
import sys
import threading

import pytest

from optrove.frameworks.import_hooks import when_imported


def never(error):
    raise AssertionError(f"the action failed: {error}")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory to import from; what a test imports, and how it waits, is gone afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_action_runs_once_when_the_module_is_complete(project):
    (project / "late_module.py").write_text("early = 1\nlast = 2\n")
    seen = []
    when_imported("late_module", lambda module: seen.append(module.last), on_fault=never)
    assert seen == []
    module = importlib.import_module("late_module")
    importlib.reload(module)
    assert seen == [2]


def test_a_module_that_is_there_is_attended_to_at_once():
    seen = []
    before = list(sys.meta_path)
    when_imported("inspect", seen.append, on_fault=never)
    assert seen == [inspect]
    assert sys.meta_path == before


def test_nothing_is_imported_and_no_finder_is_left(project):
    (project / "late_module.py").write_text("")
    before = list(sys.meta_path)
    undo = when_imported("late_module", print, on_fault=never)
    assert "late_module" not in sys.modules
    assert len(sys.meta_path) == len(before) + 1
    undo()
    undo()
    assert sys.meta_path == before
    when_imported("late_module", lambda module: None, on_fault=never)
    importlib.import_module("late_module")
    assert sys.meta_path == before


def test_what_was_taken_back_does_not_run_even_if_the_module_was_found_before(project):
    (project / "late_module.py").write_text("")
    seen = []
    undo = when_imported("late_module", seen.append, on_fault=never)
    spec = importlib.util.find_spec("late_module")
    undo()
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert seen == []


def test_several_actions_run_in_the_order_of_asking(project):
    (project / "late_module.py").write_text("")
    seen = []
    for number in range(3):
        when_imported("late_module", lambda _, number=number: seen.append(number), on_fault=never)
    importlib.import_module("late_module")
    assert seen == [0, 1, 2]


def test_a_failed_import_runs_nothing_and_the_next_one_counts(project):
    (project / "late_module.py").write_text("raise ImportError('not yet')\n")
    seen = []
    when_imported("late_module", seen.append, on_fault=never)
    with pytest.raises(ImportError, match="not yet"):
        importlib.import_module("late_module")
    assert seen == []
    (project / "late_module.py").write_text("good = True\n")
    importlib.invalidate_caches()
    module = importlib.import_module("late_module")
    assert seen == [module]


def test_a_module_that_is_not_there_is_missing_as_ever(project):
    when_imported("no_such_module", print, on_fault=never)
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_module'"):
        importlib.import_module("no_such_module")
    assert importlib.util.find_spec("no_such_module") is None


def test_a_fault_of_the_action_goes_to_its_handler_not_to_the_importer(project):
    (project / "late_module.py").write_text("")
    faults = []
    when_imported("late_module", lambda module: module.missing, on_fault=faults.append)
    importlib.import_module("late_module")
    when_imported("late_module", lambda module: module.missing, on_fault=faults.append)
    assert [type(fault) for fault in faults] == [AttributeError, AttributeError]


def test_a_package_keeps_its_own_loader_source_and_resources(project):
    package = project / "late_package"
    package.mkdir()
    source = "def answer():\n    return 42\nloader_inside = __spec__.loader\n"
    (package / "__init__.py").write_text(source)
    (package / "data.txt").write_text("resource")
    (package / "part.py").write_text("")
    seen = []
    when_imported("late_package", seen.append, on_fault=never)
    found = importlib.util.find_spec("late_package")
    assert isinstance(found.loader, importlib.machinery.SourceFileLoader)
    assert found.loader.is_package("late_package")
    assert found.loader.get_source("late_package") == source
    module = importlib.import_module("late_package")
    assert seen == [module]
    assert type(module.__loader__) is importlib.machinery.SourceFileLoader
    assert module.__spec__.loader is module.__loader__ is module.loader_inside
    assert inspect.getsource(module.answer).startswith("def answer")
    assert importlib.resources.files(module).joinpath("data.txt").read_text() == "resource"
    assert pkgutil.get_data("late_package", "data.txt") == b"resource"
    assert [entry.name for entry in pkgutil.iter_modules(module.__path__)] == ["part"]


def test_a_submodule_that_its_package_imports_lazily_is_seen(project):
    package = project / "late_package"
    package.mkdir()
    lazy = "import importlib\ndef __getattr__(n): return importlib.import_module('.' + n, __name__)"
    (package / "__init__.py").write_text(lazy)
    (package / "part.py").write_text("")
    seen = []
    when_imported("late_package.part", seen.append, on_fault=never)
    module = importlib.import_module("late_package")
    assert seen == []
    assert module.part is seen[0]


def test_a_lazily_loaded_module_is_attended_to_when_it_runs(project):
    (project / "late_module.py").write_text("value = 1\n")
    seen = []
    when_imported("late_module", lambda module: seen.append(module.value), on_fault=never)
    spec = importlib.util.find_spec("late_module")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["late_module"] = module
    spec.loader.exec_module(module)
    assert seen == []
    assert module.value == 1
    assert seen == [1]


def unloaded_extensions():
    names = ("_testcapi", "_zoneinfo", "_xxsubinterpreters", "xxlimited", "audioop")
    for name in names:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec and isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
            yield name


def test_an_extension_module_is_seen(project):
    name = next(unloaded_extensions(), None)
    if name is None:
        pytest.skip("every extension module of this Python is built in or loaded")
    seen = []
    when_imported(name, seen.append, on_fault=never)
    assert importlib.import_module(name) is seen[0]


def test_a_module_that_puts_another_object_in_its_place_is_seen_as_that_object(project):
    (project / "late_module.py").write_text("import sys, types\nsys.modules[__name__] = 'other'\n")
    seen = []
    when_imported("late_module", seen.append, on_fault=never)
    importlib.import_module("late_module")
    assert seen == ["other"]


def test_an_import_that_has_begun_is_waited_for(project):
    (project / "late_module.py").write_text("import asker\nasker.ask()\nasker.ask()\nlast = 1\n")
    (project / "asker.py").write_text(
        "seen = []\n"
        "def ask():\n"
        "    from optrove.frameworks.import_hooks import when_imported\n"
        "    add = lambda module: seen.append(module.last)\n"
        "    when_imported('late_module', add, on_fault=print)\n"
        "    assert not seen\n"
    )
    before = list(sys.meta_path)
    module = importlib.import_module("late_module")
    assert module.asker.seen == [1, 1]
    assert type(module.__spec__) is importlib.machinery.ModuleSpec
    assert sys.meta_path == before


def test_a_begun_import_that_fails_leaves_the_action_waiting(project):
    (project / "late_module.py").write_text("import asker\nasker.ask()\n")
    (project / "asker.py").write_text(
        "seen = []\n"
        "def ask():\n"
        "    from optrove.frameworks.import_hooks import when_imported\n"
        "    if not seen:\n"
        "        when_imported('late_module', seen.append, on_fault=print)\n"
        "        raise ImportError('half way')\n"
    )
    asker = importlib.import_module("asker")
    with pytest.raises(ImportError, match="half way"):
        importlib.import_module("late_module")
    assert asker.seen == []
    asker.ask = lambda: None
    module = importlib.import_module("late_module")
    assert asker.seen == [module]


def test_many_threads_importing_at_once_run_an_action_once(project):
    (project / "late_module.py").write_text("import time\ntime.sleep(0.05)\nlast = 1\n")
    seen = []
    for _ in range(5):
        when_imported("late_module", lambda module: seen.append(module.last), on_fault=never)
    start = threading.Barrier(8)

    def load():
        start.wait()
        importlib.import_module("late_module")

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 5
