from optrove.model.case import Case
from optrove.model.records import DeviceKind, DeviceParameters, Job
from optrove.model.values import DeviceRef, Int, List, TensorSpec, TtnnPlacement
from optrove.replay.jobs import device_key, device_of


def tensor(mesh_shape, storage="device"):
    placement = TtnnPlacement((32, 32), "TILE", None, storage, None, mesh_shape, None)
    return TensorSpec((32, 32), "ttnn.bfloat16", placement)


def job(*values, **options):
    named = tuple((f"a{place}", value) for place, value in enumerate(values))
    return Job(Case("ttnn.add", named), DeviceKind.MOCK, **options)


def test_the_mesh_is_that_of_the_tensors():
    assert device_of(job(tensor((2, 4)))).mesh_shape == (2, 4)


def test_the_mesh_is_that_of_the_largest_device_at_any_depth():
    found = device_of(job(List((DeviceRef("ttnn.MeshDevice", (4, 8)),)), tensor((1, 1))))
    assert found.mesh_shape == (4, 8)


def test_a_tensor_of_which_no_mesh_is_known_needs_one_chip():
    assert device_of(job(tensor(None))).mesh_shape == (1, 1)


def test_a_case_on_the_host_needs_no_device():
    assert device_of(job(Int(3), tensor(None, "host"))).mesh_shape is None


def test_recorded_parameters_stay_and_the_mesh_is_the_tensors_own():
    told = DeviceParameters(mesh_shape=(4, 8), fabric_config="FABRIC_2D", l1_small_size=1024)
    found = device_of(job(tensor((1, 8)), device=told))
    assert found == DeviceParameters((1, 8), "FABRIC_2D", l1_small_size=1024)


def test_jobs_with_the_same_needs_share_a_device():
    one, other = job(tensor((1, 2))), job(tensor((1, 2)), Int(1))
    assert device_key(one, "n300") == device_key(other, "n300")
    assert device_key(one, "n300") != device_key(job(tensor((2, 1))), "n300")
    assert device_key(one, "n300").arch == "wormhole_b0"
