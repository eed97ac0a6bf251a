"""Calls of ttnn in many forms, for tests that record each of them several times."""


def table_of_calls(ttnn, make, device):
    """Return calls by name, each of which can be made again and again; wrong ones raise."""
    a, b, target, tall = make(), make(), make(), make(64, 32)
    wide, deep = make(1, 1, 32, 64), make(2, 32, 64)
    rows = make(layout=ttnn.ROW_MAJOR_LAYOUT)
    integers = make(1, 32, dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
    memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.INTERLEAVED, ttnn.BufferType.L1)
    kernel = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi2)
    reshape, host, view = ttnn.Tensor.reshape, ttnn.from_device(a), ttnn.reshape(a, (1, 32, 32))
    many = [ttnn.UnaryOpType.RELU] * 200
    return {
        "relu": lambda: ttnn.relu(a),
        "relu in L1": lambda: ttnn.relu(a, memory_config=memory),
        "relu in L1 by name": lambda: ttnn.relu(a, memory_config=ttnn.L1_MEMORY_CONFIG),
        "gelu": lambda: ttnn.gelu(a, fast_and_approximate_mode=True),
        "add": lambda: ttnn.add(a, b),
        "add itself": lambda: ttnn.add(a, a),
        "add by name": lambda: ttnn.add(input_tensor_b=b, input_tensor_a=a),
        "add with options": lambda: ttnn.add(a, b, dtype=ttnn.float32, memory_config=memory),
        "add with options reversed": lambda: ttnn.add(
            a, b, memory_config=memory, dtype=ttnn.float32
        ),
        "add and relu": lambda: ttnn.add(a, b, activations=[ttnn.UnaryOpType.RELU]),
        "add and many relu": lambda: ttnn.add(a, b, activations=many),
        "add into": lambda: ttnn.add(a, b, output_tensor=target),
        "add in place": lambda: ttnn.add_(a, b),
        "add a number": lambda: ttnn.add(a, 2.5),
        "add zero": lambda: ttnn.add(a, 0.0),
        "add minus zero": lambda: ttnn.add(a, -0.0),
        "add an integer": lambda: ttnn.add(a, 1),
        "add a boolean": lambda: ttnn.add(a, True),
        "add a view": lambda: ttnn.add(a, view),
        "operator": lambda: a + b,
        "reversed operator": lambda: 3 * a,
        "compare": lambda: a == b,
        "index": lambda: a[0:16],
        "reshape to a view": lambda: ttnn.reshape(b, (1, 32, 32)),
        "view and all": lambda: ttnn.add(a, ttnn.reshape(a, (1, 32, 32))),
        "method": lambda: a.reshape([1, 1, 32, 32]),
        "method of the class": lambda: ttnn.Tensor.reshape(a, [1, 1, 32, 32]),
        "method from before": lambda: reshape(b, [1, 1, 32, 32]),
        "mapped method": lambda: list(map(ttnn.Tensor.cpu, [a, b])),
        "to the device": lambda: host.to(device),
        "bound method from before": host.to_list,
        "matmul": lambda: ttnn.matmul(a, b),
        "matmul configured": lambda: ttnn.matmul(a, b, compute_kernel_config=kernel),
        "matmul with another config": lambda: ttnn.matmul(a, b, program_config=program(ttnn)),
        "linear": lambda: ttnn.linear(a, b, activation="relu"),
        "transposed": lambda: ttnn.matmul(a, b, transpose_b=True),
        "softmax": lambda: ttnn.softmax(wide, dim=-1),
        "sum": lambda: ttnn.sum(deep, dim=[0, 1]),
        "mean": lambda: ttnn.mean(wide, -1, True),
        "split": lambda: ttnn.split(wide, 32, 3),
        "topk": lambda: ttnn.topk(wide, 32),
        "concat": lambda: ttnn.concat([a, b], 0),
        "concat itself": lambda: ttnn.concat([a, a], dim=0),
        "concat part of a view": lambda: ttnn.concat([a, view[0]], dim=0),
        "concat many": lambda: ttnn.concat([a] * 40, 0),
        "permute": lambda: ttnn.permute(deep, (1, 0, 2)),
        "transpose": lambda: ttnn.transpose(deep, -1, -2),
        "slice": lambda: ttnn.slice(wide, [0, 0, 0, 0], [1, 1, 32, 32]),
        "pad": lambda: ttnn.pad(a, [(0, 32), (0, 0)], 0.0),
        "to layout": lambda: ttnn.to_layout(a, ttnn.ROW_MAJOR_LAYOUT),
        "tilize": lambda: ttnn.tilize(rows),
        "typecast": lambda: ttnn.typecast(a, ttnn.float32),
        "to memory": lambda: ttnn.to_memory_config(a, memory),
        "where": lambda: ttnn.where(a, b, 0.0),
        "embedding": lambda: ttnn.embedding(integers, rows),
        "zeros": lambda: ttnn.zeros([32, 32], device=device),
        "full": lambda: ttnn.full([32], -0.0, device=device),
        "layer norm": lambda: ttnn.layer_norm(wide, epsilon=1e-6),
        "to host and back": lambda: ttnn.to_device(ttnn.from_device(a), device),
        "make and free": lambda: ttnn.deallocate(make()),
        "make and free by method": lambda: make().deallocate(),
        "make and free by force": lambda: make().deallocate(force=True),
        "wrong shapes": lambda: ttnn.matmul(a, tall @ b),
        "wrong dimensions": lambda: ttnn.matmul(wide, deep),
        "wrong types": lambda: ttnn.add(a, "b"),
        "wrong name": lambda: ttnn.add(a, no_such_argument=b),
        "wrong: nothing": ttnn.relu,
        "wrong: no tensor": lambda: ttnn.Tensor.reshape(*()),
    }


def program(ttnn):
    """Return a new program configuration."""
    return ttnn.MatmulMultiCoreReuseProgramConfig(
        compute_with_storage_grid_size=(1, 1),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=1,
        per_core_N=1,
    )
