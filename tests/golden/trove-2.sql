-- A trove of version 2. Never to be changed: it must open for ever.
BEGIN TRANSACTION;
CREATE TABLE attempts (
	"key" INTEGER NOT NULL, 
	attempt_id TEXT NOT NULL, 
	run_key INTEGER NOT NULL, 
	case_key INTEGER NOT NULL, 
	outcome TEXT NOT NULL, 
	device_kind TEXT NOT NULL, 
	board TEXT, 
	seed TEXT NOT NULL, 
	detail TEXT, 
	notes TEXT, 
	started_at TEXT, 
	duration_ns INTEGER, 
	replayed_case_id TEXT, 
	content TEXT NOT NULL, 
	PRIMARY KEY ("key"), 
	UNIQUE (attempt_id), 
	FOREIGN KEY(run_key) REFERENCES runs ("key"), 
	FOREIGN KEY(case_key) REFERENCES cases ("key")
);
INSERT INTO "attempts" VALUES(1,'230153f5bb0ad988b820e4575186db31ba9426f19a3c1d725c4e83bbd4d753b0',2,2,'passed','mock',NULL,'0',NULL,NULL,'2026-01-02T03:04:05.000000Z',NULL,NULL,'{"case_id":"f31a66f46f8e8c1281c6601b3272eebf6848332b8de97b903274a63cc385a1d2","device_kind":"mock","measurements":[{"name":"pcc","passed":true,"threshold":0.99,"value":0.999},{"name":"ulp","value":{"$float":"nan"}}],"outcome":"passed","outputs":[1],"run_id":"replayed","started_at":"2026-01-02T03:04:05.000000Z"}');
INSERT INTO "attempts" VALUES(2,'cea1b6f322511a931cbdc9c1552c43c0640c93db59acd7002ba08295fc4b3b26',2,1,'out_of_memory','mock',NULL,'0','no room',NULL,'2026-01-02T03:04:05.000000Z',NULL,NULL,'{"case_id":"b9eafa0d6d4b686d0ac45fb236b4c833de54966062859c020e7e058a59989442","detail":"no room","device_kind":"mock","outcome":"out_of_memory","outputs":[1],"run_id":"replayed","started_at":"2026-01-02T03:04:05.000000Z"}');
INSERT INTO "attempts" VALUES(3,'207f5d137883934eb7a4ab1705064c162e316c231d9f04ea07b7a177d2ff2636',5,7,'rejected','mock',NULL,'0','too wide',NULL,'2026-01-02T03:04:05.000000Z',NULL,NULL,'{"case_id":"511ff58dbf2d82dde62e8ded334573a7d9fc8cd76d1e5ca877422f24beeb8815","detail":"too wide","device_kind":"mock","measurements":[{"name":"pcc","passed":true,"threshold":0.99,"value":0.999},{"name":"ulp","value":{"$float":"nan"}}],"outcome":"rejected","outputs":[1],"run_id":"swept","started_at":"2026-01-02T03:04:05.000000Z"}');
INSERT INTO "attempts" VALUES(4,'89cc3f889c5890f1bf18c23236ecffaca666c4573cb82ef3fadbe5f391e68181',5,1,'passed','mock',NULL,'0',NULL,'a mask was supplied','2026-01-02T03:04:05.000000Z',NULL,NULL,'{"case_id":"b9eafa0d6d4b686d0ac45fb236b4c833de54966062859c020e7e058a59989442","device_kind":"mock","measurements":[{"name":"pcc","passed":true,"threshold":0.99,"value":0.999},{"name":"ulp","value":{"$float":"nan"}}],"notes":["a mask was supplied"],"outcome":"passed","outputs":[1],"run_id":"swept","started_at":"2026-01-02T03:04:05.000000Z"}');
CREATE TABLE call_blocks (
	recording_key INTEGER NOT NULL, 
	first INTEGER NOT NULL, 
	calls INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	PRIMARY KEY (recording_key, first), 
	FOREIGN KEY(recording_key) REFERENCES recordings ("key") ON DELETE CASCADE
);
INSERT INTO "call_blocks" VALUES(2,0,5,X'780163646462646640058C2000140261184857F13EB0F5B6C59ACE25C2314C0C8CDF40E2C7408418884000D3B2DBD354BBA5B6732B872004B1B3908DC7AE02280A730B8A02A8FB90C5800E06BB19558C9191095900C806002C8F0BBD');
CREATE TABLE case_tensors (
	case_key INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	argument TEXT NOT NULL, 
	shape TEXT NOT NULL, 
	dtype TEXT NOT NULL, 
	layout TEXT NOT NULL, 
	memory TEXT NOT NULL, 
	mesh TEXT, 
	PRIMARY KEY (case_key, place), 
	FOREIGN KEY(case_key) REFERENCES cases ("key") ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "case_tensors" VALUES(1,0,'input_tensor_a','1x1x32x64','bfloat16','TILE','DRAM_INTERLEAVED','1x1');
INSERT INTO "case_tensors" VALUES(1,1,'input_tensor_b','64x64','bfloat8_b','TILE','L1_WIDTH_SHARDED','1x2');
INSERT INTO "case_tensors" VALUES(2,0,'input_tensor_a','32x32','bfloat16','TILE','DRAM_INTERLEAVED','1x1');
INSERT INTO "case_tensors" VALUES(6,0,'a','32x32','bfloat16','TILE','DRAM_INTERLEAVED','1x1');
CREATE TABLE cases (
	"key" INTEGER NOT NULL, 
	case_id TEXT NOT NULL, 
	semantic_id TEXT NOT NULL, 
	family_id TEXT NOT NULL, 
	op TEXT NOT NULL, 
	replayable BOOLEAN NOT NULL, 
	calls INTEGER NOT NULL, 
	outermost_calls INTEGER NOT NULL, 
	PRIMARY KEY ("key"), 
	UNIQUE (case_id)
);
INSERT INTO "cases" VALUES(1,'b9eafa0d6d4b686d0ac45fb236b4c833de54966062859c020e7e058a59989442','af381288e0b6cf8ea6c6ba307d6bb0a7ee32287ece0a23040f27fa4ff3a0ed8c','b9eafa0d6d4b686d0ac45fb236b4c833de54966062859c020e7e058a59989442','ttnn.matmul',1,4,4);
INSERT INTO "cases" VALUES(2,'f31a66f46f8e8c1281c6601b3272eebf6848332b8de97b903274a63cc385a1d2','cb44ed88f4cb984957504485f03e7e4571ad609922ea407997390703d4091a01','2256b3683a110ef2a7be3c537c9a47b1d46ebf4bb48cf14ce2a160c07a6a8c07','ttnn.add',1,3,3);
INSERT INTO "cases" VALUES(3,'015f1dcf3d4fdb45ffe51c1e90bd865da9862bef2de3bf72e9f6e9e05003b651','015f1dcf3d4fdb45ffe51c1e90bd865da9862bef2de3bf72e9f6e9e05003b651','5f6c6ee35300d98fda1b0105641f7eaeb73810e2dfadef633cdec67b5ad8adf5','fake.add',1,3,2);
INSERT INTO "cases" VALUES(4,'7a13602339d50dad9d2b71e5f4d0b22ed5200914485bbd862964633366942d71','7a13602339d50dad9d2b71e5f4d0b22ed5200914485bbd862964633366942d71','1ea5e626a77c1e0d08b2e964c9ab0d75250aea40e2c15c38ab91914706b6a861','fake.divide',1,1,1);
INSERT INTO "cases" VALUES(5,'90f66a3dc05d93dc1bfcdb7a400fed67a5540d06f334b362f53b05be91f7296c','90f66a3dc05d93dc1bfcdb7a400fed67a5540d06f334b362f53b05be91f7296c','c2bab654d1b4fb1af1990c811ad45655426f61eab5cc919edddf7f8875e1f543','fake.outer',1,1,1);
INSERT INTO "cases" VALUES(6,'89cd755cdf2eeb3788fdd10ab97fb2e9fe46377f4271d9c833b961a14eed2e40','199c3acd70b3f3bdad36444138a5428e9b50599f0e0ea04553371183aa6bb216','89cd755cdf2eeb3788fdd10ab97fb2e9fe46377f4271d9c833b961a14eed2e40','ttnn.linear',1,2,2);
INSERT INTO "cases" VALUES(7,'511ff58dbf2d82dde62e8ded334573a7d9fc8cd76d1e5ca877422f24beeb8815','511ff58dbf2d82dde62e8ded334573a7d9fc8cd76d1e5ca877422f24beeb8815','4f2a62dd643dfe7cd5c09a170ba17cd1f61b3204caf384cb1c48e3ee633b3126','sweep.add.xfail_wide',1,0,0);
CREATE TABLE config_calls (
	recording_key INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	case_key INTEGER NOT NULL, 
	calls INTEGER NOT NULL, 
	PRIMARY KEY (recording_key, place), 
	FOREIGN KEY(recording_key) REFERENCES recordings ("key") ON DELETE CASCADE, 
	FOREIGN KEY(case_key) REFERENCES cases ("key")
)
 WITHOUT ROWID

;
INSERT INTO "config_calls" VALUES(3,0,'layers.3.mlp.w1',6,2);
CREATE TABLE contents (
	case_key INTEGER NOT NULL, 
	content TEXT NOT NULL, 
	PRIMARY KEY (case_key), 
	FOREIGN KEY(case_key) REFERENCES cases ("key") ON DELETE CASCADE
);
INSERT INTO "contents" VALUES(1,'{"arguments":{"input_tensor_a":{"$tensor":{"dtype":"ttnn.bfloat16","identity":0,"placement":{"device":0,"kind":"ttnn","layout":"TILE","memory":{"$struct":"ttnn.MemoryConfig","fields":{"buffer_type":{"$symbol":"ttnn.BufferType","name":"DRAM"},"memory_layout":{"$symbol":"ttnn.TensorMemoryLayout","name":"INTERLEAVED"},"nd_shard_spec":null,"shard_spec":null}},"mesh":null,"mesh_shape":[1,1],"padded_shape":[1,1,32,64],"storage":"device","tile":{"face_shape":[16,16],"shape":[32,32],"transpose_of_faces":false,"transpose_within_face":false}},"shape":[1,1,32,64],"storage":0}},"input_tensor_b":{"$tensor":{"dtype":"ttnn.bfloat8_b","identity":1,"placement":{"device":0,"kind":"ttnn","layout":"TILE","memory":{"$struct":"ttnn.MemoryConfig","fields":{"buffer_type":{"$symbol":"ttnn.BufferType","name":"L1"},"memory_layout":{"$symbol":"ttnn.TensorMemoryLayout","name":"WIDTH_SHARDED"},"nd_shard_spec":null,"shard_spec":{"$struct":"ttnn.ShardSpec","fields":{"grid":{"$struct":"ttnn.CoreRangeSet","fields":{"ranges":[{"$struct":"ttnn.CoreRange","fields":{"end":{"$struct":"ttnn.CoreCoord","fields":{"x":7,"y":0}},"start":{"$struct":"ttnn.CoreCoord","fields":{"x":0,"y":0}}}}]}},"orientation":{"$symbol":"ttnn.ShardOrientation","name":"ROW_MAJOR"},"shape":[64,8]}}}},"mesh":null,"mesh_shape":[1,2],"padded_shape":[64,64],"storage":"device","tile":{"face_shape":[16,16],"shape":[32,32],"transpose_of_faces":false,"transpose_within_face":false}},"shape":[64,64],"storage":1}}},"op":"ttnn.matmul"}');
INSERT INTO "contents" VALUES(2,'{"arguments":{"input_tensor_a":{"$tensor":{"dtype":"ttnn.bfloat16","identity":0,"placement":{"device":0,"kind":"ttnn","layout":"TILE","memory":{"$struct":"ttnn.MemoryConfig","fields":{"buffer_type":{"$symbol":"ttnn.BufferType","name":"DRAM"},"memory_layout":{"$symbol":"ttnn.TensorMemoryLayout","name":"INTERLEAVED"},"nd_shard_spec":null,"shard_spec":null}},"mesh":null,"mesh_shape":[1,1],"padded_shape":[32,32],"storage":"device","tile":{"face_shape":[16,16],"shape":[32,32],"transpose_of_faces":false,"transpose_within_face":false}},"shape":[32,32],"storage":0}},"input_tensor_b":1.5},"op":"ttnn.add"}');
INSERT INTO "contents" VALUES(3,'{"arguments":{"a":1,"b":2},"op":"fake.add"}');
INSERT INTO "contents" VALUES(4,'{"arguments":{"a":1,"b":0},"op":"fake.divide"}');
INSERT INTO "contents" VALUES(5,'{"arguments":{"a":7},"op":"fake.outer"}');
INSERT INTO "contents" VALUES(6,'{"arguments":{"a":{"$tensor":{"dtype":"ttnn.bfloat16","identity":0,"placement":{"device":0,"kind":"ttnn","layout":"TILE","memory":{"$struct":"ttnn.MemoryConfig","fields":{"buffer_type":{"$symbol":"ttnn.BufferType","name":"DRAM"},"memory_layout":{"$symbol":"ttnn.TensorMemoryLayout","name":"INTERLEAVED"},"nd_shard_spec":null,"shard_spec":null}},"mesh":null,"mesh_shape":[1,1],"padded_shape":[32,32],"storage":"device","tile":{"face_shape":[16,16],"shape":[32,32],"transpose_of_faces":false,"transpose_within_face":false}},"shape":[32,32],"storage":0}}},"op":"ttnn.linear"}');
INSERT INTO "contents" VALUES(7,'{"arguments":{"input_shape":[32,32]},"op":"sweep.add.xfail_wide"}');
CREATE TABLE endings (
	"key" INTEGER NOT NULL, 
	ending_id TEXT NOT NULL, 
	raised BOOLEAN NOT NULL, 
	content TEXT NOT NULL, 
	PRIMARY KEY ("key"), 
	UNIQUE (ending_id)
);
INSERT INTO "endings" VALUES(1,'43f401ab46be18591bc728cf575405b264ad7c3ff56043af5adc8177ba2c8fc0',1,'"ZeroDivisionError: division by zero"');
INSERT INTO "endings" VALUES(2,'50068eaabe898bd0e3556491ed850a680a4cb9bfc39be2bb03fbc4a478bd5aa9',0,'[3]');
CREATE TABLE environments (
	"key" INTEGER NOT NULL, 
	environment_id TEXT NOT NULL, 
	device_kind TEXT NOT NULL, 
	board TEXT, 
	arch TEXT, 
	ttnn_version TEXT, 
	torch_version TEXT, 
	git_sha TEXT, 
	content TEXT NOT NULL, 
	PRIMARY KEY ("key"), 
	UNIQUE (environment_id)
);
INSERT INTO "environments" VALUES(1,'ac3f3f5fde73d0826c3c9100e41a4e5c35c5a9e61afa7a2baf97a6584a9995e5','host','n300',NULL,NULL,NULL,NULL,'{"board":"n300","device":{"mesh_shape":[1,2]},"optrove_version":"0.1","platform":"linux","python_version":"3.12"}');
CREATE TABLE executions (
	recording_key INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	case_key INTEGER NOT NULL, 
	scope_key INTEGER, 
	ending_key INTEGER, 
	outcome TEXT NOT NULL, 
	outermost BOOLEAN NOT NULL, 
	calls INTEGER NOT NULL, 
	total_ns INTEGER, 
	shortest_ns INTEGER, 
	longest_ns INTEGER, 
	PRIMARY KEY (recording_key, place), 
	FOREIGN KEY(recording_key) REFERENCES recordings ("key") ON DELETE CASCADE, 
	FOREIGN KEY(case_key) REFERENCES cases ("key"), 
	FOREIGN KEY(scope_key) REFERENCES scopes ("key"), 
	FOREIGN KEY(ending_key) REFERENCES endings ("key")
)
 WITHOUT ROWID

;
INSERT INTO "executions" VALUES(1,0,1,NULL,NULL,'returned',1,4,NULL,NULL,NULL);
INSERT INTO "executions" VALUES(1,1,2,NULL,NULL,'returned',1,3,NULL,NULL,NULL);
INSERT INTO "executions" VALUES(2,0,3,NULL,2,'returned',1,1,5540661,5540661,5540661);
INSERT INTO "executions" VALUES(2,1,3,1,2,'returned',0,1,2966,2966,2966);
INSERT INTO "executions" VALUES(2,2,3,1,2,'returned',1,1,6774,6774,6774);
INSERT INTO "executions" VALUES(2,3,4,1,1,'raised',1,1,8997,8997,8997);
INSERT INTO "executions" VALUES(2,4,5,1,NULL,'returned',1,1,47067,47067,47067);
INSERT INTO "executions" VALUES(3,0,6,NULL,NULL,'returned',1,2,NULL,NULL,NULL);
CREATE TABLE measurements (
	attempt_key INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	value FLOAT, 
	threshold FLOAT, 
	passed BOOLEAN, 
	output INTEGER, 
	PRIMARY KEY (attempt_key, place), 
	FOREIGN KEY(attempt_key) REFERENCES attempts ("key") ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "measurements" VALUES(1,0,'pcc',0.999,0.99,1,NULL);
INSERT INTO "measurements" VALUES(1,1,'ulp',NULL,NULL,NULL,NULL);
INSERT INTO "measurements" VALUES(3,0,'pcc',0.999,0.99,1,NULL);
INSERT INTO "measurements" VALUES(3,1,'ulp',NULL,NULL,NULL,NULL);
INSERT INTO "measurements" VALUES(4,0,'pcc',0.999,0.99,1,NULL);
INSERT INTO "measurements" VALUES(4,1,'ulp',NULL,NULL,NULL,NULL);
CREATE TABLE op_usage (
	run_key INTEGER NOT NULL, 
	op TEXT NOT NULL, 
	cases INTEGER NOT NULL, 
	outermost_cases INTEGER NOT NULL, 
	calls INTEGER NOT NULL, 
	outermost_calls INTEGER NOT NULL, 
	PRIMARY KEY (run_key, op), 
	FOREIGN KEY(run_key) REFERENCES runs ("key") ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "op_usage" VALUES(1,'ttnn.add',1,1,3,3);
INSERT INTO "op_usage" VALUES(1,'ttnn.matmul',1,1,4,4);
INSERT INTO "op_usage" VALUES(3,'fake.add',1,1,3,2);
INSERT INTO "op_usage" VALUES(3,'fake.divide',1,1,1,1);
INSERT INTO "op_usage" VALUES(3,'fake.outer',1,1,1,1);
INSERT INTO "op_usage" VALUES(4,'ttnn.linear',1,1,2,2);
CREATE TABLE planned (
	run_key INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	case_key INTEGER NOT NULL, 
	suite TEXT, 
	device_kind TEXT NOT NULL, 
	board TEXT, 
	PRIMARY KEY (run_key, place), 
	UNIQUE (run_key, case_key), 
	FOREIGN KEY(run_key) REFERENCES runs ("key") ON DELETE CASCADE, 
	FOREIGN KEY(case_key) REFERENCES cases ("key")
)
 WITHOUT ROWID

;
INSERT INTO "planned" VALUES(5,0,7,'xfail_wide','mock','n300');
INSERT INTO "planned" VALUES(5,1,1,NULL,'mock','n300');
INSERT INTO "planned" VALUES(5,2,2,NULL,'mock','n300');
CREATE TABLE recordings (
	"key" INTEGER NOT NULL, 
	run_key INTEGER NOT NULL, 
	process INTEGER NOT NULL, 
	complete BOOLEAN NOT NULL, 
	calls INTEGER NOT NULL, 
	size INTEGER NOT NULL, 
	digest TEXT NOT NULL, 
	dictionary BLOB, 
	PRIMARY KEY ("key"), 
	UNIQUE (run_key, process), 
	FOREIGN KEY(run_key) REFERENCES runs ("key")
);
INSERT INTO "recordings" VALUES(1,1,0,1,7,0,'825b2f47e65ab888b0e19581bd539ac314caad733b30dc2dd1214f956a291f36',NULL);
INSERT INTO "recordings" VALUES(2,3,0,1,5,1428,'680b96763d107c4c9380e4f266b54e4f0ca2eceb74c334ee578f450d34ac9452',X'78013D51CB6EE3300CFC954067A3A0DE96CFBB3FB1C52290440A35EA4686E5044883FC7B29A3ED89E4703818920F91979ADFCF97262665C1683F2A1FFC389A41AC5BCDD4B80183687BDC76C283277D3023282B3548A3821CB51FC48DB636D78B98E420726CC4630F21C52440DA2231178DA66032B614B2324B0A9070741663189D4A5414924EC52B0AC55120B0003A392BC52014CB0428CE458D192C060E32958CC9470350089D8FD61A4070456B93B453C5EA04365190AC195C6619CD323E4AED40691DD002460CA89297648B41484A115A0510A431A34DDD1F8F1AA7B5762E18855E8AE720EA755FAFFBCF82AFFA3F63B46D75FB81C43FDAEA9FF936F78BFCED9DE984DFE529DD4F9FDCEE426DDE7FEFF42A3E2AD2F2B2DEC5304297DC28B6DAFFF2E8D45CD75FEE4320DDE64CFDC48B3CB78FB82CE7367F32204119A6772DDE1629F7E4A8AF4B479678E747BD0063EB1BBF89A1CCD35CB295FD3C23034716D9C9341D69BD9078760FEFB4E7B7C3C5F3F905958AAAD5');
INSERT INTO "recordings" VALUES(3,4,0,1,2,0,'77d42c1ac531652fe8439fa1764414a46dabd074f522817541e3994da28f54dd',NULL);
CREATE TABLE runs (
	"key" INTEGER NOT NULL, 
	run_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	source TEXT NOT NULL, 
	model TEXT, 
	environment_key INTEGER NOT NULL, 
	started_at TEXT NOT NULL, 
	finished_at TEXT, 
	machine TEXT NOT NULL, 
	content TEXT NOT NULL, 
	PRIMARY KEY ("key"), 
	UNIQUE (run_id), 
	FOREIGN KEY(environment_key) REFERENCES environments ("key")
);
INSERT INTO "runs" VALUES(1,'imported','import','imported.py','some/Model',1,'2026-01-02T03:04:05.000000Z',NULL,'{"board_type":"Wormhole","card_count":32,"device_count":32,"device_series":"tt-galaxy-wh","mesh_device_shape":[4,8]}','{"id":"imported","kind":"import","model":"some/Model","source":"imported.py","started_at":"2026-01-02T03:04:05.000000Z"}');
INSERT INTO "runs" VALUES(2,'replayed','replay','replayed.py',NULL,1,'2026-01-02T03:04:05.000000Z',NULL,'{"board_type":"n300","mesh_device_shape":[1,2]}','{"id":"replayed","kind":"replay","source":"replayed.py","started_at":"2026-01-02T03:04:05.000000Z"}');
INSERT INTO "runs" VALUES(3,'traced','trace','traced.py','small/Model',1,'2026-01-02T03:04:05.000000Z','2026-01-02T03:05:00.000000Z','{"board_type":"n300","mesh_device_shape":[1,2]}','{"exit_code":0,"finished_at":"2026-01-02T03:05:00.000000Z","id":"traced","kind":"trace","model":"small/Model","source":"traced.py","started_at":"2026-01-02T03:04:05.000000Z"}');
INSERT INTO "runs" VALUES(4,'configured','import','configured.py',NULL,1,'2026-01-01T00:00:00.000000Z',NULL,'{"board_type":"Wormhole","device_series":"n300","mesh_device_shape":[1,2]}','{"id":"configured","kind":"import","source":"configured.py","started_at":"2026-01-01T00:00:00.000000Z"}');
INSERT INTO "runs" VALUES(5,'swept','sweep','swept.py',NULL,1,'2026-01-02T03:04:05.000000Z',NULL,'{"board_type":"n300","mesh_device_shape":[1,2]}','{"id":"swept","kind":"sweep","source":"swept.py","started_at":"2026-01-02T03:04:05.000000Z"}');
CREATE TABLE scopes (
	"key" INTEGER NOT NULL, 
	scope_id TEXT NOT NULL, 
	test_id TEXT, 
	phase TEXT, 
	module TEXT, 
	mode TEXT, 
	device TEXT, 
	PRIMARY KEY ("key"), 
	UNIQUE (scope_id)
);
INSERT INTO "scopes" VALUES(1,'f9d5ba969d0e42e46ea78164d2ad8d799840cf474630a7a649cf8d40af0992e2','test_a.py::test_one','call','layers.0','decode','{"l1_small_size":1024}');
CREATE TABLE sweeps (
	run_key INTEGER NOT NULL, 
	plan_id TEXT NOT NULL, 
	content TEXT NOT NULL, 
	PRIMARY KEY (run_key), 
	FOREIGN KEY(run_key) REFERENCES runs ("key") ON DELETE CASCADE
);
INSERT INTO "sweeps" VALUES(5,'264697b342c502329bed6257c95e42ac5956ed1b0a938faaa92512a82f96311a','{"board":"n300","budget_ns":600000000000,"device_kind":"mock","engine":"ray","filters":[["model","llama"]],"left_out":[["invalid: too wide",2]],"measured":["perf"],"modules":[{"digest":"0000000000000000000000000000000000000000000000000000000000000000","name":"add","path":"sweeps/add.py"}],"order_seed":2,"seed":1,"source":"trove","suite":"xfail_wide","targets":["add.py","matmul"],"timeout_ns":5000000000}');
CREATE TABLE tests (
	recording_key INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	test_id TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	content TEXT NOT NULL, 
	PRIMARY KEY (recording_key, place), 
	FOREIGN KEY(recording_key) REFERENCES recordings ("key") ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "tests" VALUES(2,0,'test_a.py::test_one','passed','{"outcome":"passed","run_id":"traced","test_id":"test_a.py::test_one"}');
INSERT INTO "tests" VALUES(2,1,'test_a.py::test_two','skipped','{"outcome":"skipped","run_id":"traced","test_id":"test_a.py::test_two"}');
CREATE TABLE trove (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "trove" VALUES('format','optrove-trove');
INSERT INTO "trove" VALUES('version','2');
INSERT INTO "trove" VALUES('created_at','2026-11-16T06:53:49+00:00');
INSERT INTO "trove" VALUES('optrove_version','0.1.0');
CREATE TABLE usage (
	run_key INTEGER NOT NULL, 
	case_key INTEGER NOT NULL, 
	calls INTEGER NOT NULL, 
	outermost_calls INTEGER NOT NULL, 
	PRIMARY KEY (run_key, case_key), 
	FOREIGN KEY(run_key) REFERENCES runs ("key") ON DELETE CASCADE, 
	FOREIGN KEY(case_key) REFERENCES cases ("key")
)
 WITHOUT ROWID

;
INSERT INTO "usage" VALUES(1,1,4,4);
INSERT INTO "usage" VALUES(1,2,3,3);
INSERT INTO "usage" VALUES(3,3,3,2);
INSERT INTO "usage" VALUES(3,4,1,1);
INSERT INTO "usage" VALUES(3,5,1,1);
INSERT INTO "usage" VALUES(4,6,2,2);
CREATE INDEX ix_cases_op ON cases (op, outermost_calls, calls, replayable);
CREATE INDEX ix_runs_environment ON runs (environment_key);
CREATE INDEX ix_runs_started ON runs (started_at);
CREATE INDEX ix_usage_case ON usage (case_key);
CREATE INDEX ix_attempts_case ON attempts (case_key, board, outcome);
CREATE INDEX ix_attempts_run ON attempts (run_key, outcome);
CREATE INDEX ix_planned_case ON planned (case_key);
CREATE INDEX ix_executions_scope ON executions (scope_key);
CREATE INDEX ix_executions_case ON executions (case_key);
CREATE INDEX ix_executions_ending ON executions (ending_key);
CREATE INDEX ix_config_calls_case ON config_calls (case_key);
COMMIT;
