"""Every class that the installed ttnn publishes has a converter, or a reason not to have one."""

import json
from dataclasses import is_dataclass

import pytest

from optrove.frameworks.ttnn.convert import table as values
from optrove.model.values import Opaque, walk
from optrove.runconfig.jsonable import from_jsonable, to_jsonable
from optrove.serializer import plain
from optrove.serializer.describe import describe
from optrove.serializer.tables import StructConverter, Tables
from ttnn_samples import Samples

pytestmark = pytest.mark.ttnn

EXCUSED = values.NOT_CONVERTIBLE | values.NOT_CONFIGURATIONS


@pytest.fixture(scope="module")
def found(ttnn):
    return values.find(ttnn)


@pytest.fixture(scope="module")
def table(ttnn):
    return values.table()


def test_no_class_is_left_out(found, table):
    unexplained = {
        name
        for cls, name in found.values.items()
        if not any(base in table.by_type for base in cls.__mro__) and name not in EXCUSED
    }
    assert unexplained == set()


def test_configurations_written_in_python_are_dataclasses(ttnn):
    """Those have a converter of their own kind, whatever their fields are."""
    others = [
        cls
        for cls in vars(ttnn).values()
        if isinstance(cls, type)
        and cls.__name__.endswith("Config")
        and cls.__module__.startswith("ttnn.")
        and not cls.__module__.startswith("ttnn._ttnn")
        and not is_dataclass(cls)
        and not any(base.__module__.startswith("ttnn._ttnn") for base in cls.__mro__)
    ]
    assert others == []


def test_every_program_and_compute_configuration_has_a_converter(found, table):
    wanted = ("ProgramConfig", "ComputeKernelConfig", "SliceConfig", "MatmulConfig", "Conv2dConfig")
    missing = [
        name
        for cls, name in found.values.items()
        if name.endswith(wanted) and cls not in table.by_type
    ]
    assert missing == []
    assert len([name for name in table.by_name if name.endswith(wanted)]) >= 17


def test_a_class_without_a_constructor_is_no_configuration_that_could_be_passed(found):
    """What Python cannot make and is named like a configuration is the base of some that it can."""
    bases = {name for name in found.handed_out.values() if name.endswith("Config")}
    assert {name.rsplit(".", 1)[-1] for name in bases} <= {
        "Config",  # the settings of the process, which ttnn 0.78 only hands out
        "DeviceComputeKernelConfig",
        "LayerNormProgramConfig",
        "MatmulProgramConfig",
        "SoftmaxProgramConfig",
    }


def test_the_reasons_are_few_and_still_true(found, table):
    assert len(values.NOT_CONVERTIBLE) <= 6
    assert EXCUSED.keys().isdisjoint(table.by_name)
    by_name = {name: cls for cls, name in found.values.items()}
    present = by_name.keys() & EXCUSED.keys()
    # The two that the rule would accept: a data format without a Python type, and their owner.
    unreadable = {"ttnn.CBFormatDescriptor", "ttnn.ProgramDescriptor"}
    services = {"ttnn.InterProcessCounterChannel"}
    derivable = {
        name
        for name in present
        if not values.hidden_state(by_name[name]) and not values.holds_live_objects(by_name[name])
    }
    assert derivable <= unreadable | services


def test_every_enumeration_round_trips(ttnn, found, table):
    for cls, name in found.enums.items():
        for member in cls:
            data = json.loads(json.dumps(to_jsonable(member)))
            assert data == {"$symbol": name, "name": member.name}
            assert from_jsonable(data) is member


def test_every_class_round_trips_with_no_field_at_its_default(ttnn, found, table):
    samples = Samples(ttnn, found, table)
    tables = Tables([table, plain.table()])
    faults = [
        f"{name}: {fault}"
        for cls, name in found.values.items()
        if isinstance(table.by_type.get(cls), StructConverter)
        for live in samples.of_class(cls)
        if (fault := _round_trip_fault(live, tables)) is not None
    ]
    assert faults == []
    assert len(table.by_name) > 140


def test_the_samples_differ_from_the_defaults(ttnn, found, table):
    """The proof above proves nothing for a field that it leaves at its default."""
    samples = Samples(ttnn, found, table)
    tables = Tables([table, plain.table()])
    for cls in found.values:
        converter = table.by_type.get(cls)
        if not isinstance(converter, StructConverter) or not values.constructors(cls):
            continue
        fields = converter.fields(samples.of_class(cls)[0])
        for name, default in samples.defaults(cls, converter).items():
            if name in fields and not _is_dead(cls, name):
                value = describe(fields[name], tables)
                assert value != describe(default, tables), f"{converter.name}.{name}"


def _is_dead(cls, name):
    """Return whether ttnn says that a field is kept for old callers only and never changes."""
    member = vars(cls).get(name)
    return isinstance(member, property) and "no-op" in (member.fget.__doc__ or "")


def _round_trip_fault(live, tables):
    value = describe(live, tables)
    if any(isinstance(part, Opaque) for _, part in walk(value)):
        return f"has an opaque part: {value}"
    made = from_jsonable(json.loads(json.dumps(to_jsonable(live))))
    if type(made) is not type(live):
        return f"came back as {type(made)}"
    again = describe(made, tables)
    return None if again == value else f"{value} came back as {again}"
