-- A trove of version 4. Never to be changed: it must open for ever.
BEGIN TRANSACTION;
CREATE TABLE attempts (
    key INTEGER NOT NULL,  -- number within this trove
    attempt_id TEXT NOT NULL,  -- hash of the content
    run_key INTEGER NOT NULL,  -- the Run that made it
    case_key INTEGER NOT NULL,  -- the Case that was executed
    outcome TEXT NOT NULL,  -- passed, numerics, wrong_spec, rejected, ..., not_run
    device_kind TEXT NOT NULL,  -- hw, mock, shadow or host
    board TEXT,  -- name of the board
    seed TEXT NOT NULL,  -- seed of the inputs, an integer of any size
    detail TEXT,  -- message of the operation or the machine
    notes TEXT,  -- remarks of the replay itself, one per line
    started_at TEXT,  -- when it began, ISO 8601 in UTC
    duration_ns INTEGER,  -- duration
    replayed_case_id TEXT,  -- hash of the call as it was traced during the replay
    content TEXT NOT NULL,  -- the whole Attempt with its outputs, as canonical JSON
    PRIMARY KEY (key),
    UNIQUE (attempt_id),
    FOREIGN KEY (run_key) REFERENCES runs (key),
    FOREIGN KEY (case_key) REFERENCES cases (key)
);
INSERT INTO "attempts" VALUES(1,'207f5d137883934eb7a4ab1705064c162e316c231d9f04ea07b7a177d2ff2636',4,4,'rejected','mock',NULL,'0','too wide',NULL,'2026-01-02T03:04:05.000000Z',NULL,NULL,'{"case_id":"511ff58dbf2d82dde62e8ded334573a7d9fc8cd76d1e5ca877422f24beeb8815","detail":"too wide","device_kind":"mock","measurements":[{"name":"pcc","passed":true,"threshold":0.99,"value":0.999},{"name":"ulp","value":{"$float":"nan"}}],"outcome":"rejected","outputs":[1],"run_id":"swept","started_at":"2026-01-02T03:04:05.000000Z"}');
INSERT INTO "attempts" VALUES(2,'230153f5bb0ad988b820e4575186db31ba9426f19a3c1d725c4e83bbd4d753b0',3,3,'passed','mock',NULL,'0',NULL,NULL,'2026-01-02T03:04:05.000000Z',NULL,NULL,'{"case_id":"f31a66f46f8e8c1281c6601b3272eebf6848332b8de97b903274a63cc385a1d2","device_kind":"mock","measurements":[{"name":"pcc","passed":true,"threshold":0.99,"value":0.999},{"name":"ulp","value":{"$float":"nan"}}],"outcome":"passed","outputs":[1],"run_id":"replayed","started_at":"2026-01-02T03:04:05.000000Z"}');
INSERT INTO "attempts" VALUES(3,'89cc3f889c5890f1bf18c23236ecffaca666c4573cb82ef3fadbe5f391e68181',4,2,'passed','mock',NULL,'0',NULL,'a mask was supplied','2026-01-02T03:04:05.000000Z',NULL,NULL,'{"case_id":"b9eafa0d6d4b686d0ac45fb236b4c833de54966062859c020e7e058a59989442","device_kind":"mock","measurements":[{"name":"pcc","passed":true,"threshold":0.99,"value":0.999},{"name":"ulp","value":{"$float":"nan"}}],"notes":["a mask was supplied"],"outcome":"passed","outputs":[1],"run_id":"swept","started_at":"2026-01-02T03:04:05.000000Z"}');
INSERT INTO "attempts" VALUES(4,'cea1b6f322511a931cbdc9c1552c43c0640c93db59acd7002ba08295fc4b3b26',3,2,'out_of_memory','mock',NULL,'0','no room',NULL,'2026-01-02T03:04:05.000000Z',NULL,NULL,'{"case_id":"b9eafa0d6d4b686d0ac45fb236b4c833de54966062859c020e7e058a59989442","detail":"no room","device_kind":"mock","outcome":"out_of_memory","outputs":[1],"run_id":"replayed","started_at":"2026-01-02T03:04:05.000000Z"}');
CREATE TABLE call_blocks (
    recording_key INTEGER NOT NULL,  -- the Recording that it is a part of
    first INTEGER NOT NULL,  -- op_index of its first call
    calls INTEGER NOT NULL,  -- number of calls in it
    content BLOB NOT NULL,  -- the calls, packed
    PRIMARY KEY (recording_key, first),
    FOREIGN KEY (recording_key) REFERENCES recordings (key) ON DELETE CASCADE
);
INSERT INTO "call_blocks" VALUES(3,0,5,X'780163646462646640058C2000140261184857F13EB0F5B6C59ACE25C2314C0C8CDF40E2C7408418884000D3B2DBD354BBA5B6732B872004B1B3908DC7AE02280A730B8A02A8FB90C5800E06BB19558C9191095900C806002C8F0BBD');
CREATE TABLE capsule_files (
    name TEXT NOT NULL,  -- <run id>.<process>.jsonl, or the hash of a tensor with .safetensors
    content BLOB NOT NULL,  -- content of the file
    PRIMARY KEY (name)
);
CREATE TABLE case_tensors (
    case_key INTEGER NOT NULL,  -- the Case that it is an argument of
    place INTEGER NOT NULL,  -- number in the order of the arguments
    argument TEXT NOT NULL,  -- name of the parameter that holds it, at any depth
    shape TEXT NOT NULL,  -- 1x1x32x64
    dtype TEXT NOT NULL,  -- without the framework: bfloat8_b
    layout TEXT NOT NULL,  -- TILE, ROW_MAJOR, ...
    memory TEXT NOT NULL,  -- L1_HEIGHT_SHARDED, DRAM_INTERLEAVED, HOST, a torch device, ...
    mesh TEXT,  -- shape of the mesh that it is distributed over: 2x4
    PRIMARY KEY (case_key, place),
    FOREIGN KEY (case_key) REFERENCES cases (key) ON DELETE CASCADE
) WITHOUT ROWID;
INSERT INTO "case_tensors" VALUES(1,0,'a','32x32','bfloat16','TILE','DRAM_INTERLEAVED','1x1');
INSERT INTO "case_tensors" VALUES(2,0,'input_tensor_a','1x1x32x64','bfloat16','TILE','DRAM_INTERLEAVED','1x1');
INSERT INTO "case_tensors" VALUES(2,1,'input_tensor_b','64x64','bfloat8_b','TILE','L1_WIDTH_SHARDED','1x2');
INSERT INTO "case_tensors" VALUES(3,0,'input_tensor_a','32x32','bfloat16','TILE','DRAM_INTERLEAVED','1x1');
CREATE TABLE cases (
    key INTEGER NOT NULL,  -- number within this trove
    case_id TEXT NOT NULL,  -- placement hash
    semantic_id TEXT NOT NULL,  -- semantic hash: the computation, wherever it is placed
    family_id TEXT NOT NULL,  -- equal for Cases that differ in scalar arguments only
    op TEXT NOT NULL,  -- public name of the operation
    replayable BOOLEAN NOT NULL,  -- whether the recording holds everything that a replay needs
    calls INTEGER NOT NULL,  -- derived: calls of all Runs, at any depth
    outermost_calls INTEGER NOT NULL,  -- derived: calls of all Runs that no other call made
    tensor_set_key INTEGER,  -- derived: the kinds of tensors among its arguments; NULL: no tensor
    origin_set_key INTEGER,  -- derived: the origins that call it outermost; NULL: no origin
    last_outcome TEXT,  -- derived: outcome of the Attempt that was added last; NULL: no Attempt
    PRIMARY KEY (key),
    UNIQUE (case_id)
);
INSERT INTO "cases" VALUES(1,'89cd755cdf2eeb3788fdd10ab97fb2e9fe46377f4271d9c833b961a14eed2e40','199c3acd70b3f3bdad36444138a5428e9b50599f0e0ea04553371183aa6bb216','89cd755cdf2eeb3788fdd10ab97fb2e9fe46377f4271d9c833b961a14eed2e40','ttnn.linear',1,2,2,1,1,NULL);
INSERT INTO "cases" VALUES(2,'b9eafa0d6d4b686d0ac45fb236b4c833de54966062859c020e7e058a59989442','af381288e0b6cf8ea6c6ba307d6bb0a7ee32287ece0a23040f27fa4ff3a0ed8c','b9eafa0d6d4b686d0ac45fb236b4c833de54966062859c020e7e058a59989442','ttnn.matmul',1,4,4,2,2,'out_of_memory');
INSERT INTO "cases" VALUES(3,'f31a66f46f8e8c1281c6601b3272eebf6848332b8de97b903274a63cc385a1d2','cb44ed88f4cb984957504485f03e7e4571ad609922ea407997390703d4091a01','2256b3683a110ef2a7be3c537c9a47b1d46ebf4bb48cf14ce2a160c07a6a8c07','ttnn.add',1,3,3,1,2,'passed');
INSERT INTO "cases" VALUES(4,'511ff58dbf2d82dde62e8ded334573a7d9fc8cd76d1e5ca877422f24beeb8815','511ff58dbf2d82dde62e8ded334573a7d9fc8cd76d1e5ca877422f24beeb8815','4f2a62dd643dfe7cd5c09a170ba17cd1f61b3204caf384cb1c48e3ee633b3126','sweep.add.xfail_wide',1,0,0,NULL,NULL,'rejected');
INSERT INTO "cases" VALUES(5,'015f1dcf3d4fdb45ffe51c1e90bd865da9862bef2de3bf72e9f6e9e05003b651','015f1dcf3d4fdb45ffe51c1e90bd865da9862bef2de3bf72e9f6e9e05003b651','5f6c6ee35300d98fda1b0105641f7eaeb73810e2dfadef633cdec67b5ad8adf5','fake.add',1,3,2,NULL,3,NULL);
INSERT INTO "cases" VALUES(6,'7a13602339d50dad9d2b71e5f4d0b22ed5200914485bbd862964633366942d71','7a13602339d50dad9d2b71e5f4d0b22ed5200914485bbd862964633366942d71','1ea5e626a77c1e0d08b2e964c9ab0d75250aea40e2c15c38ab91914706b6a861','fake.divide',1,1,1,NULL,3,NULL);
INSERT INTO "cases" VALUES(7,'90f66a3dc05d93dc1bfcdb7a400fed67a5540d06f334b362f53b05be91f7296c','90f66a3dc05d93dc1bfcdb7a400fed67a5540d06f334b362f53b05be91f7296c','c2bab654d1b4fb1af1990c811ad45655426f61eab5cc919edddf7f8875e1f543','fake.outer',1,1,1,NULL,3,NULL);
CREATE TABLE config_calls (
    recording_key INTEGER NOT NULL,  -- the Recording that holds them
    place INTEGER NOT NULL,  -- number within the Recording
    path TEXT NOT NULL,  -- entry of the run configuration: model.layers.3.mlp.w1
    case_key INTEGER NOT NULL,  -- the Case that was called with it
    calls INTEGER NOT NULL,  -- number of calls
    PRIMARY KEY (recording_key, place),
    FOREIGN KEY (recording_key) REFERENCES recordings (key) ON DELETE CASCADE,
    FOREIGN KEY (case_key) REFERENCES cases (key)
) WITHOUT ROWID;
INSERT INTO "config_calls" VALUES(1,0,'layers.3.mlp.w1',1,2);
CREATE TABLE contents (
    case_key INTEGER NOT NULL,  -- the Case
    content TEXT NOT NULL,  -- canonical JSON from which case_id is made
    PRIMARY KEY (case_key),
    FOREIGN KEY (case_key) REFERENCES cases (key) ON DELETE CASCADE
);
INSERT INTO "contents" VALUES(1,'{"arguments":{"a":{"$tensor":{"dtype":"ttnn.bfloat16","identity":0,"placement":{"device":0,"kind":"ttnn","layout":"TILE","memory":{"$struct":"ttnn.MemoryConfig","fields":{"buffer_type":{"$symbol":"ttnn.BufferType","name":"DRAM"},"memory_layout":{"$symbol":"ttnn.TensorMemoryLayout","name":"INTERLEAVED"},"nd_shard_spec":null,"shard_spec":null}},"mesh":null,"mesh_shape":[1,1],"padded_shape":[32,32],"storage":"device","tile":{"face_shape":[16,16],"shape":[32,32],"transpose_of_faces":false,"transpose_within_face":false}},"shape":[32,32],"storage":0}}},"op":"ttnn.linear"}');
INSERT INTO "contents" VALUES(2,'{"arguments":{"input_tensor_a":{"$tensor":{"dtype":"ttnn.bfloat16","identity":0,"placement":{"device":0,"kind":"ttnn","layout":"TILE","memory":{"$struct":"ttnn.MemoryConfig","fields":{"buffer_type":{"$symbol":"ttnn.BufferType","name":"DRAM"},"memory_layout":{"$symbol":"ttnn.TensorMemoryLayout","name":"INTERLEAVED"},"nd_shard_spec":null,"shard_spec":null}},"mesh":null,"mesh_shape":[1,1],"padded_shape":[1,1,32,64],"storage":"device","tile":{"face_shape":[16,16],"shape":[32,32],"transpose_of_faces":false,"transpose_within_face":false}},"shape":[1,1,32,64],"storage":0}},"input_tensor_b":{"$tensor":{"dtype":"ttnn.bfloat8_b","identity":1,"placement":{"device":0,"kind":"ttnn","layout":"TILE","memory":{"$struct":"ttnn.MemoryConfig","fields":{"buffer_type":{"$symbol":"ttnn.BufferType","name":"L1"},"memory_layout":{"$symbol":"ttnn.TensorMemoryLayout","name":"WIDTH_SHARDED"},"nd_shard_spec":null,"shard_spec":{"$struct":"ttnn.ShardSpec","fields":{"grid":{"$struct":"ttnn.CoreRangeSet","fields":{"ranges":[{"$struct":"ttnn.CoreRange","fields":{"end":{"$struct":"ttnn.CoreCoord","fields":{"x":7,"y":0}},"start":{"$struct":"ttnn.CoreCoord","fields":{"x":0,"y":0}}}}]}},"orientation":{"$symbol":"ttnn.ShardOrientation","name":"ROW_MAJOR"},"shape":[64,8]}}}},"mesh":null,"mesh_shape":[1,2],"padded_shape":[64,64],"storage":"device","tile":{"face_shape":[16,16],"shape":[32,32],"transpose_of_faces":false,"transpose_within_face":false}},"shape":[64,64],"storage":1}}},"op":"ttnn.matmul"}');
INSERT INTO "contents" VALUES(3,'{"arguments":{"input_tensor_a":{"$tensor":{"dtype":"ttnn.bfloat16","identity":0,"placement":{"device":0,"kind":"ttnn","layout":"TILE","memory":{"$struct":"ttnn.MemoryConfig","fields":{"buffer_type":{"$symbol":"ttnn.BufferType","name":"DRAM"},"memory_layout":{"$symbol":"ttnn.TensorMemoryLayout","name":"INTERLEAVED"},"nd_shard_spec":null,"shard_spec":null}},"mesh":null,"mesh_shape":[1,1],"padded_shape":[32,32],"storage":"device","tile":{"face_shape":[16,16],"shape":[32,32],"transpose_of_faces":false,"transpose_within_face":false}},"shape":[32,32],"storage":0}},"input_tensor_b":1.5},"op":"ttnn.add"}');
INSERT INTO "contents" VALUES(4,'{"arguments":{"input_shape":[32,32]},"op":"sweep.add.xfail_wide"}');
INSERT INTO "contents" VALUES(5,'{"arguments":{"a":1,"b":2},"op":"fake.add"}');
INSERT INTO "contents" VALUES(6,'{"arguments":{"a":1,"b":0},"op":"fake.divide"}');
INSERT INTO "contents" VALUES(7,'{"arguments":{"a":7},"op":"fake.outer"}');
CREATE TABLE endings (
    key INTEGER NOT NULL,  -- number within this trove
    ending_id TEXT NOT NULL,  -- hash of the other columns
    raised BOOLEAN NOT NULL,  -- whether it is an error
    content TEXT NOT NULL,  -- JSON: the list of outputs, or the text of the error
    PRIMARY KEY (key),
    UNIQUE (ending_id)
);
INSERT INTO "endings" VALUES(1,'43f401ab46be18591bc728cf575405b264ad7c3ff56043af5adc8177ba2c8fc0',1,'"ZeroDivisionError: division by zero"');
INSERT INTO "endings" VALUES(2,'50068eaabe898bd0e3556491ed850a680a4cb9bfc39be2bb03fbc4a478bd5aa9',0,'[3]');
CREATE TABLE environments (
    key INTEGER NOT NULL,  -- number within this trove
    environment_id TEXT NOT NULL,  -- hash of the content
    device_kind TEXT NOT NULL,  -- hw, mock, shadow or host
    board TEXT,  -- name of the board, as optrove boards lists it
    arch TEXT,  -- architecture of its chips
    ttnn_version TEXT,  -- version of ttnn
    torch_version TEXT,  -- version of torch
    git_sha TEXT,  -- commit of the code that ran
    content TEXT NOT NULL,  -- the whole Environment, as canonical JSON
    PRIMARY KEY (key),
    UNIQUE (environment_id)
);
INSERT INTO "environments" VALUES(1,'ac3f3f5fde73d0826c3c9100e41a4e5c35c5a9e61afa7a2baf97a6584a9995e5','host','n300',NULL,NULL,NULL,NULL,'{"board":"n300","device":{"mesh_shape":[1,2]},"optrove_version":"0.1","platform":"linux","python_version":"3.12"}');
CREATE TABLE executions (
    recording_key INTEGER NOT NULL,  -- the Recording that holds them
    place INTEGER NOT NULL,  -- number within the Recording
    case_key INTEGER NOT NULL,  -- the Case that was called
    scope_key INTEGER,  -- the test and module that called it
    ending_key INTEGER,  -- its outputs or error
    outcome TEXT NOT NULL,  -- returned, raised or unfinished
    outermost BOOLEAN NOT NULL,  -- whether no other call made them
    calls INTEGER NOT NULL,  -- number of calls
    total_ns INTEGER,  -- duration of all together; NULL: not known
    shortest_ns INTEGER,  -- duration of the shortest
    longest_ns INTEGER,  -- duration of the longest
    PRIMARY KEY (recording_key, place),
    FOREIGN KEY (recording_key) REFERENCES recordings (key) ON DELETE CASCADE,
    FOREIGN KEY (case_key) REFERENCES cases (key),
    FOREIGN KEY (scope_key) REFERENCES scopes (key),
    FOREIGN KEY (ending_key) REFERENCES endings (key)
) WITHOUT ROWID;
INSERT INTO "executions" VALUES(1,0,1,NULL,NULL,'returned',1,2,NULL,NULL,NULL);
INSERT INTO "executions" VALUES(2,0,2,NULL,NULL,'returned',1,4,NULL,NULL,NULL);
INSERT INTO "executions" VALUES(2,1,3,NULL,NULL,'returned',1,3,NULL,NULL,NULL);
INSERT INTO "executions" VALUES(3,0,5,NULL,2,'returned',1,1,5540661,5540661,5540661);
INSERT INTO "executions" VALUES(3,1,5,1,2,'returned',0,1,2966,2966,2966);
INSERT INTO "executions" VALUES(3,2,5,1,2,'returned',1,1,6774,6774,6774);
INSERT INTO "executions" VALUES(3,3,6,1,1,'raised',1,1,8997,8997,8997);
INSERT INTO "executions" VALUES(3,4,7,1,NULL,'returned',1,1,47067,47067,47067);
CREATE TABLE last_attempts (
    case_key INTEGER NOT NULL,  -- the Case
    board TEXT NOT NULL,  -- name of the board, or none
    device_kind TEXT NOT NULL,  -- hw, mock, shadow or host
    op TEXT NOT NULL,  -- public name of the operation of the Case
    attempt_key INTEGER NOT NULL,  -- the Attempt that was added last
    outcome TEXT NOT NULL,  -- its outcome
    PRIMARY KEY (case_key, board, device_kind),
    FOREIGN KEY (case_key) REFERENCES cases (key) ON DELETE CASCADE
) WITHOUT ROWID;
INSERT INTO "last_attempts" VALUES(2,'none','mock','ttnn.matmul',4,'out_of_memory');
INSERT INTO "last_attempts" VALUES(3,'none','mock','ttnn.add',2,'passed');
INSERT INTO "last_attempts" VALUES(4,'none','mock','sweep.add.xfail_wide',1,'rejected');
CREATE TABLE measurements (
    attempt_key INTEGER NOT NULL,  -- the Attempt
    place INTEGER NOT NULL,  -- number among the measurements of the Attempt
    name TEXT NOT NULL,  -- pcc, max_abs_error, ...
    value FLOAT,  -- the number; NULL where it is not a number
    threshold FLOAT,  -- the limit that it was compared with
    passed BOOLEAN,  -- whether it met the limit
    output INTEGER,  -- index of the output that it belongs to
    PRIMARY KEY (attempt_key, place),
    FOREIGN KEY (attempt_key) REFERENCES attempts (key) ON DELETE CASCADE
) WITHOUT ROWID;
INSERT INTO "measurements" VALUES(1,0,'pcc',0.999,0.99,1,NULL);
INSERT INTO "measurements" VALUES(1,1,'ulp',NULL,NULL,NULL,NULL);
INSERT INTO "measurements" VALUES(2,0,'pcc',0.999,0.99,1,NULL);
INSERT INTO "measurements" VALUES(2,1,'ulp',NULL,NULL,NULL,NULL);
INSERT INTO "measurements" VALUES(3,0,'pcc',0.999,0.99,1,NULL);
INSERT INTO "measurements" VALUES(3,1,'ulp',NULL,NULL,NULL,NULL);
CREATE TABLE op_attempts (
    run_key INTEGER NOT NULL,  -- the Run
    op TEXT NOT NULL,  -- public name of the operation
    outcome TEXT NOT NULL,  -- the outcome
    attempts INTEGER NOT NULL,  -- number of Attempts
    board TEXT,  -- name of their board; of several, the first in alphabetical order
    timed INTEGER NOT NULL,  -- number of Attempts with a known duration
    total_ns INTEGER NOT NULL,  -- duration of these together
    outputs INTEGER NOT NULL,  -- number of outputs with a PCC
    total_pcc FLOAT NOT NULL,  -- sum of the PCC of these
    least_pcc FLOAT,  -- the lowest PCC
    most_pcc FLOAT,  -- the highest PCC
    PRIMARY KEY (run_key, op, outcome),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
) WITHOUT ROWID;
INSERT INTO "op_attempts" VALUES(3,'ttnn.add','passed',1,NULL,0,0,1,0.999,0.999,0.999);
INSERT INTO "op_attempts" VALUES(3,'ttnn.matmul','out_of_memory',1,NULL,0,0,0,0.0,NULL,NULL);
INSERT INTO "op_attempts" VALUES(4,'sweep.add.xfail_wide','rejected',1,NULL,0,0,1,0.999,0.999,0.999);
INSERT INTO "op_attempts" VALUES(4,'ttnn.matmul','passed',1,NULL,0,0,1,0.999,0.999,0.999);
CREATE TABLE op_usage (
    run_key INTEGER NOT NULL,  -- the Run
    op TEXT NOT NULL,  -- public name of the operation
    cases INTEGER NOT NULL,  -- number of different Cases
    outermost_cases INTEGER NOT NULL,  -- number of these that were called by no other call
    calls INTEGER NOT NULL,  -- calls at any depth
    outermost_calls INTEGER NOT NULL,  -- calls that no other call made
    timed_calls INTEGER NOT NULL,  -- number of these with a known duration
    total_ns INTEGER NOT NULL,  -- duration of the timed calls together
    PRIMARY KEY (run_key, op),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
) WITHOUT ROWID;
INSERT INTO "op_usage" VALUES(1,'ttnn.linear',1,1,2,2,0,0);
INSERT INTO "op_usage" VALUES(2,'ttnn.add',1,1,3,3,0,0);
INSERT INTO "op_usage" VALUES(2,'ttnn.matmul',1,1,4,4,0,0);
INSERT INTO "op_usage" VALUES(5,'fake.add',1,1,3,2,2,5547435);
INSERT INTO "op_usage" VALUES(5,'fake.divide',1,1,1,1,1,8997);
INSERT INTO "op_usage" VALUES(5,'fake.outer',1,1,1,1,1,47067);
CREATE TABLE origin_sets (
    key INTEGER NOT NULL,  -- number within this trove
    origin_set_id TEXT NOT NULL,  -- hash of the members
    members TEXT NOT NULL,  -- JSON: a sorted list of keys of origins
    PRIMARY KEY (key),
    UNIQUE (origin_set_id)
);
INSERT INTO "origin_sets" VALUES(1,'aeb0b9ce3e43f64c7b56a388efac1514166c4cf5c92df5c6a4dd9f867bf35f83','[1]');
INSERT INTO "origin_sets" VALUES(2,'45e60d48db7f4117a54d62230be998b2c7d58f1d5d350f975d688c4f698376c4','[2]');
INSERT INTO "origin_sets" VALUES(3,'865432296c618ec6f4619688a12d02e8fdcf1005641f8792c90230e8c6d23a68','[3]');
CREATE TABLE origins (
    key INTEGER NOT NULL,  -- number within this trove
    origin_id TEXT NOT NULL,  -- hash of the other columns
    model TEXT NOT NULL,  -- the model, or else the source of the Runs
    board TEXT NOT NULL,  -- name of the board, or none
    PRIMARY KEY (key),
    UNIQUE (origin_id)
);
INSERT INTO "origins" VALUES(1,'f9a45a566b450db789b427b6a533c0ddf44fcc59fc2d4c82fa35896e4264fd73','configured.py','n300');
INSERT INTO "origins" VALUES(2,'a4eb31c4c679a58474682eb1086b529807e062c321d8b354287ce75366e226db','some/Model','n300');
INSERT INTO "origins" VALUES(3,'214d10604d8333376be462cfc717baaa59ce21e85ec91527d032aad4ec25ca53','small/Model','n300');
CREATE TABLE planned (
    run_key INTEGER NOT NULL,  -- the Run
    place INTEGER NOT NULL,  -- number in the order of execution
    case_key INTEGER NOT NULL,  -- the Case to execute
    suite TEXT,  -- name of its suite, where it is a vector of a sweep module
    device_kind TEXT NOT NULL,  -- kind of device to execute it on: hw, mock, shadow or host
    board TEXT,  -- name of that board
    PRIMARY KEY (run_key, place),
    UNIQUE (run_key, case_key),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE,
    FOREIGN KEY (case_key) REFERENCES cases (key)
) WITHOUT ROWID;
INSERT INTO "planned" VALUES(4,0,4,'xfail_wide','mock','n300');
INSERT INTO "planned" VALUES(4,1,2,NULL,'mock','n300');
INSERT INTO "planned" VALUES(4,2,3,NULL,'mock','n300');
CREATE TABLE recordings (
    key INTEGER NOT NULL,  -- number within this trove
    run_key INTEGER NOT NULL,  -- the Run that it is a part of
    process INTEGER NOT NULL,  -- number of the process among those of the Run
    complete BOOLEAN NOT NULL,  -- whether the process and all of its calls ended normally
    calls INTEGER NOT NULL,  -- number of calls that began
    size INTEGER NOT NULL,  -- bytes of the journal's lines; zero for imports
    digest TEXT NOT NULL,  -- hash of the whole journal or import
    dictionary BLOB,  -- meaning of the numbers in the blocks of calls
    PRIMARY KEY (key),
    UNIQUE (run_key, process),
    FOREIGN KEY (run_key) REFERENCES runs (key)
);
INSERT INTO "recordings" VALUES(1,1,0,1,2,0,'77d42c1ac531652fe8439fa1764414a46dabd074f522817541e3994da28f54dd',NULL);
INSERT INTO "recordings" VALUES(2,2,0,1,7,0,'825b2f47e65ab888b0e19581bd539ac314caad733b30dc2dd1214f956a291f36',NULL);
INSERT INTO "recordings" VALUES(3,5,0,1,5,1428,'680b96763d107c4c9380e4f266b54e4f0ca2eceb74c334ee578f450d34ac9452',X'78013D51CB6EE3300CFC954067A3A0DE96CFBB3FB1C52290440A35EA4686E5044883FC7B29A3ED89E4703818920F91979ADFCF97262665C1683F2A1FFC389A41AC5BCDD4B80183687BDC76C283277D3023282B3548A3821CB51FC48DB636D78B98E420726CC4630F21C52440DA2231178DA66032B614B2324B0A9070741663189D4A5414924EC52B0AC55120B0003A392BC52014CB0428CE458D192C060E32958CC9470350089D8FD61A4070456B93B453C5EA04365190AC195C6619CD323E4AED40691DD002460CA89297648B41484A115A0510A431A34DDD1F8F1AA7B5762E18855E8AE720EA755FAFFBCF82AFFA3F63B46D75FB81C43FDAEA9FF936F78BFCED9DE984DFE529DD4F9FDCEE426DDE7FEFF42A3E2AD2F2B2DEC5304297DC28B6DAFFF2E8D45CD75FEE4320DDE64CFDC48B3CB78FB82CE7367F32204119A6772DDE1629F7E4A8AF4B479678E747BD0063EB1BBF89A1CCD35CB295FD3C23034716D9C9341D69BD9078760FEFB4E7B7C3C5F3F905958AAAD5');
CREATE TABLE results (
    run_key INTEGER NOT NULL,  -- the Run
    case_key INTEGER NOT NULL,  -- the Case
    attempt_key INTEGER NOT NULL,  -- the Attempt
    verdict_key INTEGER NOT NULL,  -- its verdict
    took_ns INTEGER,  -- the measured duration, or else that of the whole Attempt
    outputs INTEGER NOT NULL,  -- number of outputs whose PCC was measured
    pcc FLOAT,  -- the lowest PCC; NULL: not measured, or not a number
    PRIMARY KEY (run_key, case_key),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
) WITHOUT ROWID;
INSERT INTO "results" VALUES(3,2,4,2,NULL,0,NULL);
INSERT INTO "results" VALUES(3,3,2,3,NULL,1,0.999);
INSERT INTO "results" VALUES(4,2,3,3,NULL,1,0.999);
INSERT INTO "results" VALUES(4,4,1,1,NULL,1,0.999);
CREATE TABLE runs (
    key INTEGER NOT NULL,  -- number within this trove
    run_id TEXT NOT NULL,  -- name of the Run in every trove
    kind TEXT NOT NULL,  -- trace, replay, sweep or import
    source TEXT NOT NULL,  -- the program or test that ran: path [HF_MODEL:name]
    model TEXT,  -- the model, where it is known
    environment_key INTEGER NOT NULL,  -- where it took place
    started_at TEXT NOT NULL,  -- when it began, ISO 8601 in UTC
    finished_at TEXT,  -- when it ended; NULL: interrupted, or still running
    machine TEXT NOT NULL,  -- machine_info of tt-metal's master files, as canonical JSON
    content TEXT NOT NULL,  -- the whole Run except its environment, as canonical JSON
    PRIMARY KEY (key),
    UNIQUE (run_id),
    FOREIGN KEY (environment_key) REFERENCES environments (key)
);
INSERT INTO "runs" VALUES(1,'configured','import','configured.py',NULL,1,'2026-01-01T00:00:00.000000Z',NULL,'{"board_type":"Wormhole","device_series":"n300","mesh_device_shape":[1,2]}','{"id":"configured","kind":"import","source":"configured.py","started_at":"2026-01-01T00:00:00.000000Z"}');
INSERT INTO "runs" VALUES(2,'imported','import','imported.py','some/Model',1,'2026-01-02T03:04:05.000000Z',NULL,'{"board_type":"Wormhole","card_count":32,"device_count":32,"device_series":"tt-galaxy-wh","mesh_device_shape":[4,8]}','{"id":"imported","kind":"import","model":"some/Model","source":"imported.py","started_at":"2026-01-02T03:04:05.000000Z"}');
INSERT INTO "runs" VALUES(3,'replayed','replay','replayed.py',NULL,1,'2026-01-02T03:04:05.000000Z',NULL,'{"board_type":"n300","mesh_device_shape":[1,2]}','{"id":"replayed","kind":"replay","source":"replayed.py","started_at":"2026-01-02T03:04:05.000000Z"}');
INSERT INTO "runs" VALUES(4,'swept','sweep','swept.py',NULL,1,'2026-01-02T03:04:05.000000Z',NULL,'{"board_type":"n300","mesh_device_shape":[1,2]}','{"id":"swept","kind":"sweep","source":"swept.py","started_at":"2026-01-02T03:04:05.000000Z"}');
INSERT INTO "runs" VALUES(5,'traced','trace','traced.py','small/Model',1,'2026-01-02T03:04:05.000000Z','2026-01-02T03:05:00.000000Z','{"board_type":"n300","mesh_device_shape":[1,2]}','{"exit_code":0,"finished_at":"2026-01-02T03:05:00.000000Z","id":"traced","kind":"trace","model":"small/Model","source":"traced.py","started_at":"2026-01-02T03:04:05.000000Z"}');
CREATE TABLE scopes (
    key INTEGER NOT NULL,  -- number within this trove
    scope_id TEXT NOT NULL,  -- hash of the other columns
    test_id TEXT,  -- pytest's node id
    phase TEXT,  -- setup, call or teardown
    module TEXT,  -- path of the module of the model
    mode TEXT,  -- prefill or decode
    device TEXT,  -- device parameters that differ from the Run's, as JSON
    PRIMARY KEY (key),
    UNIQUE (scope_id)
);
INSERT INTO "scopes" VALUES(1,'f9d5ba969d0e42e46ea78164d2ad8d799840cf474630a7a649cf8d40af0992e2','test_a.py::test_one','call','layers.0','decode','{"l1_small_size":1024}');
CREATE TABLE sessions (
    run_key INTEGER NOT NULL,  -- the Run
    begun_at TEXT NOT NULL,  -- when it began with the Run, ISO 8601 in UTC
    process TEXT NOT NULL,  -- boot of the machine, namespace, number and start of the process
    alive_at TEXT NOT NULL,  -- its last sign of life, ISO 8601 in UTC
    ending TEXT,  -- complete, interrupted, ...; NULL: still running, or killed
    PRIMARY KEY (run_key, begun_at, process),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
) WITHOUT ROWID;
INSERT INTO "sessions" VALUES(4,'2026-01-02T03:04:05.000000Z','5a1f:4026531836 77 1200','2026-01-02T03:04:09.000000Z','interrupted');
INSERT INTO "sessions" VALUES(4,'2026-01-03T03:04:05.000000Z','5a1f:4026531836 78 4700','2026-01-03T03:04:08.000000Z',NULL);
CREATE TABLE sweeps (
    run_key INTEGER NOT NULL,  -- the Run
    plan_id TEXT NOT NULL,  -- hash of the plan: equal Cases on equal boards in equal order
    content TEXT NOT NULL,  -- the request, and the cases that were not planned, as canonical JSON
    PRIMARY KEY (run_key),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
);
INSERT INTO "sweeps" VALUES(4,'264697b342c502329bed6257c95e42ac5956ed1b0a938faaa92512a82f96311a','{"board":"n300","budget_ns":600000000000,"device_kind":"mock","engine":"ray","filters":[["model","llama"]],"left_out":[["invalid: too wide",2]],"measured":["perf"],"modules":[{"digest":"0000000000000000000000000000000000000000000000000000000000000000","name":"add","path":"sweeps/add.py"}],"order_seed":2,"seed":1,"source":"trove","suite":"xfail_wide","targets":["add.py","matmul"],"timeout_ns":5000000000}');
CREATE TABLE tensor_sets (
    key INTEGER NOT NULL,  -- number within this trove
    tensor_set_id TEXT NOT NULL,  -- hash of the members
    members TEXT NOT NULL,  -- JSON: a sorted list of [dtype, layout, memory, mesh]
    PRIMARY KEY (key),
    UNIQUE (tensor_set_id)
);
INSERT INTO "tensor_sets" VALUES(1,'51e82242be8f9854c4660e8b9afe7fc905e008b5408fa0d7db1bbb6609ad2225','[["bfloat16","TILE","DRAM_INTERLEAVED","1x1"]]');
INSERT INTO "tensor_sets" VALUES(2,'c2a5893b477f52372edeb0afa48b23a85a81f7c518fc4bf1201cc64c04f30735','[["bfloat16","TILE","DRAM_INTERLEAVED","1x1"],["bfloat8_b","TILE","L1_WIDTH_SHARDED","1x2"]]');
CREATE TABLE tests (
    recording_key INTEGER NOT NULL,  -- the Recording that holds it
    place INTEGER NOT NULL,  -- number among the results of the Recording
    test_id TEXT NOT NULL,  -- pytest's node id
    outcome TEXT NOT NULL,  -- passed, failed, skipped, ...
    content TEXT NOT NULL,  -- the whole TestResult, as canonical JSON
    PRIMARY KEY (recording_key, place),
    FOREIGN KEY (recording_key) REFERENCES recordings (key) ON DELETE CASCADE
) WITHOUT ROWID;
INSERT INTO "tests" VALUES(3,0,'test_a.py::test_one','passed','{"outcome":"passed","run_id":"traced","test_id":"test_a.py::test_one"}');
INSERT INTO "tests" VALUES(3,1,'test_a.py::test_two','skipped','{"outcome":"skipped","run_id":"traced","test_id":"test_a.py::test_two"}');
CREATE TABLE trove (
    name TEXT NOT NULL,  -- format, version, created_at, optrove_version
    value TEXT NOT NULL,  -- the value of this fact
    PRIMARY KEY (name)
);
INSERT INTO "trove" VALUES('format','optrove-trove');
INSERT INTO "trove" VALUES('version','4');
INSERT INTO "trove" VALUES('created_at','2026-01-02T03:04:05+00:00');
INSERT INTO "trove" VALUES('optrove_version','0.2.0');
CREATE TABLE usage (
    run_key INTEGER NOT NULL,  -- the Run
    case_key INTEGER NOT NULL,  -- the Case
    calls INTEGER NOT NULL,  -- calls at any depth
    outermost_calls INTEGER NOT NULL,  -- calls that no other call made
    timed_calls INTEGER NOT NULL,  -- number of these with a known duration
    total_ns INTEGER NOT NULL,  -- duration of the timed calls together
    PRIMARY KEY (run_key, case_key),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE,
    FOREIGN KEY (case_key) REFERENCES cases (key)
) WITHOUT ROWID;
INSERT INTO "usage" VALUES(1,1,2,2,0,0);
INSERT INTO "usage" VALUES(2,2,4,4,0,0);
INSERT INTO "usage" VALUES(2,3,3,3,0,0);
INSERT INTO "usage" VALUES(5,5,3,2,2,5547435);
INSERT INTO "usage" VALUES(5,6,1,1,1,8997);
INSERT INTO "usage" VALUES(5,7,1,1,1,47067);
CREATE TABLE verdicts (
    key INTEGER NOT NULL,  -- number within this trove
    verdict_id TEXT NOT NULL,  -- hash of the other columns
    outcome TEXT NOT NULL,  -- outcome of the Attempt
    device_kind TEXT NOT NULL,  -- hw, mock, shadow or host
    cause TEXT,  -- cause of a failure, without its numbers
    suite TEXT,  -- name of the suite in the plan of a sweep
    outputs TEXT,  -- the outputs of a passed Attempt, as canonical JSON
    PRIMARY KEY (key),
    UNIQUE (verdict_id)
);
INSERT INTO "verdicts" VALUES(1,'1cf68591e871d19368b9d72da0910f2ce53d13ae98edbff1c104d51e3db45313','rejected','mock','too wide','xfail_wide',NULL);
INSERT INTO "verdicts" VALUES(2,'56a21ab411d46f256ead6401b8eb52c3c16c1fcc8a9b3c633138161aca7e3efb','out_of_memory','mock','no room',NULL,NULL);
INSERT INTO "verdicts" VALUES(3,'895607dba0a579ce9f47a817abd5e8a7f3112c38f86f6d4a1394a4d3651d7c5f','passed','mock',NULL,NULL,'[1]');
CREATE INDEX ix_runs_environment ON runs (environment_key);
CREATE INDEX ix_runs_started ON runs (started_at);
CREATE INDEX ix_cases_groups ON cases (op, tensor_set_key, origin_set_key, last_outcome,
    outermost_calls, calls, replayable);
CREATE INDEX ix_cases_order ON cases (op, outermost_calls DESC, case_id);
CREATE INDEX ix_cases_families ON cases (op, family_id, outermost_calls, case_id);
CREATE INDEX ix_executions_case ON executions (case_key);
CREATE INDEX ix_executions_scope ON executions (scope_key);
CREATE INDEX ix_executions_ending ON executions (ending_key);
CREATE INDEX ix_config_calls_case ON config_calls (case_key);
CREATE INDEX ix_usage_case ON usage (case_key);
CREATE INDEX ix_op_usage_op ON op_usage (op);
CREATE INDEX ix_attempts_run ON attempts (run_key, outcome);
CREATE INDEX ix_attempts_case ON attempts (case_key, board, outcome);
CREATE INDEX ix_planned_case ON planned (case_key);
CREATE INDEX ix_last_attempts_op ON last_attempts (op, board, device_kind, outcome);
CREATE INDEX ix_op_attempts_op ON op_attempts (op);
COMMIT;
