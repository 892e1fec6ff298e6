BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE experiments (
	id VARCHAR(32) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	config JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	mlflow_run_id VARCHAR(64), 
	CONSTRAINT pk_experiments PRIMARY KEY (id)
);
INSERT INTO "experiments" VALUES('4b163b32019c49b58537b4b0ad28b2b4','kept','{"name": "kept", "pair": "bundled", "task": "arithmetic", "limit": 2, "seeds": [0], "decodings": [{"acceptance": {"kind": "autoregressive"}, "drafter": null, "topology": null, "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0}, "max_new_tokens": 128}, {"acceptance": {"divergence": "js", "threshold": 0.1, "divergence_top_k": 50, "kind": "fsd-reducible", "guard": true}, "drafter": {"kind": "draft-model"}, "topology": {"kind": "chain", "length": 5}, "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0}, "max_new_tokens": 128}, {"acceptance": {"divergence": "js", "threshold": 0.3, "divergence_top_k": 50, "kind": "fsd-reducible", "guard": true}, "drafter": {"kind": "draft-model"}, "topology": {"kind": "chain", "length": 5}, "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0}, "max_new_tokens": 128}], "dtype": "auto", "device": "auto"}','2026-11-21 04:43:36.035775',NULL);
CREATE TABLE generations (
	id INTEGER NOT NULL, 
	run_id VARCHAR(32) NOT NULL, 
	position INTEGER NOT NULL, 
	example_id VARCHAR(255) NOT NULL, 
	prompt TEXT NOT NULL, 
	reference TEXT, 
	text TEXT NOT NULL, 
	answer TEXT, 
	outcome VARCHAR(16) NOT NULL, 
	stop_reason VARCHAR(16) NOT NULL, 
	error TEXT, 
	tokens INTEGER NOT NULL, 
	rounds INTEGER NOT NULL, 
	drafted INTEGER NOT NULL, 
	accepted INTEGER NOT NULL, 
	fuzzy INTEGER NOT NULL, 
	negative_log_likelihood DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	time_to_first_token DOUBLE NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_generations PRIMARY KEY (id), 
	CONSTRAINT fk_generations_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE, 
	CONSTRAINT uq_generations_run_id UNIQUE (run_id, position)
);
INSERT INTO "generations" VALUES(1,'abba9345dc6f43d3ab681f7904421db1',0,'e0','2 + 3 = ?','5','so #### 5','5','correct','eos',NULL,2,1,2,1,0,0.8,0.5,0.1,'2026-11-21 04:43:36.119848');
CREATE TABLE jobs (
	id VARCHAR(32) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	payload JSON NOT NULL, 
	priority INTEGER NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	error TEXT, 
	cancel_requested BOOLEAN NOT NULL, 
	claim_token VARCHAR(32), 
	lease_expires_at DATETIME, 
	attempts INTEGER NOT NULL, 
	lost_workers INTEGER NOT NULL, 
	created_at DATETIME NOT NULL, 
	started_at DATETIME, 
	finished_at DATETIME, 
	CONSTRAINT pk_jobs PRIMARY KEY (id)
);
INSERT INTO "jobs" VALUES('4b163b32019c49b58537b4b0ad28b2b4','experiment','{"experiment_id": "4b163b32019c49b58537b4b0ad28b2b4"}',0,'running',NULL,0,'337e9e3d53f34da29e040c42e4efbc9f','2026-11-21 04:43:37.067911',1,0,'2026-11-21 04:43:36.047672','2026-11-21 04:43:36.067903',NULL);
CREATE TABLE runs (
	id VARCHAR(32) NOT NULL, 
	experiment_id VARCHAR(32), 
	position INTEGER NOT NULL, 
	setting_id VARCHAR(16) NOT NULL, 
	task VARCHAR(255) NOT NULL, 
	seed INTEGER NOT NULL, 
	config JSON NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	error TEXT, 
	prompts_done INTEGER NOT NULL, 
	prompts_total INTEGER NOT NULL, 
	metrics JSON, 
	provenance JSON, 
	created_at DATETIME NOT NULL, 
	started_at DATETIME, 
	finished_at DATETIME, 
	mlflow_run_id VARCHAR(64), 
	mlflow_synced_at DATETIME, 
	CONSTRAINT pk_runs PRIMARY KEY (id), 
	CONSTRAINT fk_runs_experiment_id_experiments FOREIGN KEY(experiment_id) REFERENCES experiments (id), 
	CONSTRAINT fk_runs_setting_id_settings FOREIGN KEY(setting_id) REFERENCES settings (id)
);
INSERT INTO "runs" VALUES('abba9345dc6f43d3ab681f7904421db1','4b163b32019c49b58537b4b0ad28b2b4',0,'b398ad40dd9f7328','arithmetic',0,'{"setting": {"pair": "bundled", "decoding": {"acceptance": {"kind": "autoregressive"}, "drafter": null, "topology": null, "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0}, "max_new_tokens": 128}}, "task": "arithmetic", "limit": 2, "seed": 0, "dtype": "auto", "device": "auto"}','running',NULL,1,2,NULL,'{"device": "cpu"}','2026-11-21 04:43:36.050138','2026-11-21 04:43:36.101351',NULL,NULL,NULL);
INSERT INTO "runs" VALUES('93f2b12e8d014f0a8e01304489a441b6','4b163b32019c49b58537b4b0ad28b2b4',1,'c1b532d6def55f57','arithmetic',0,'{"setting": {"pair": "bundled", "decoding": {"acceptance": {"divergence": "js", "threshold": 0.1, "divergence_top_k": 50, "kind": "fsd-reducible", "guard": true}, "drafter": {"kind": "draft-model"}, "topology": {"kind": "chain", "length": 5}, "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0}, "max_new_tokens": 128}}, "task": "arithmetic", "limit": 2, "seed": 0, "dtype": "auto", "device": "auto"}','queued',NULL,0,2,NULL,NULL,'2026-11-21 04:43:36.050142',NULL,NULL,NULL,NULL);
INSERT INTO "runs" VALUES('ec4216555085443c876ec797a83005f0','4b163b32019c49b58537b4b0ad28b2b4',2,'869687ec33096ad8','arithmetic',0,'{"setting": {"pair": "bundled", "decoding": {"acceptance": {"divergence": "js", "threshold": 0.3, "divergence_top_k": 50, "kind": "fsd-reducible", "guard": true}, "drafter": {"kind": "draft-model"}, "topology": {"kind": "chain", "length": 5}, "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0}, "max_new_tokens": 128}}, "task": "arithmetic", "limit": 2, "seed": 0, "dtype": "auto", "device": "auto"}','queued',NULL,0,2,NULL,NULL,'2026-11-21 04:43:36.050143',NULL,NULL,NULL,NULL);
CREATE TABLE settings (
	id VARCHAR(16) NOT NULL, 
	pair VARCHAR(255) NOT NULL, 
	label VARCHAR(255) NOT NULL, 
	acceptance VARCHAR(255) NOT NULL, 
	threshold DOUBLE, 
	config JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_settings PRIMARY KEY (id)
);
INSERT INTO "settings" VALUES('b398ad40dd9f7328','bundled','Target alone','autoregressive',NULL,'{"pair": "bundled", "decoding": {"acceptance": {"kind": "autoregressive"}, "drafter": null, "topology": null, "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0}, "max_new_tokens": 128}}','2026-11-21 04:43:36.037988');
INSERT INTO "settings" VALUES('c1b532d6def55f57','bundled','FSD reducible · js ≤ 0.1 · γ 5','fsd-reducible',0.1,'{"pair": "bundled", "decoding": {"acceptance": {"divergence": "js", "threshold": 0.1, "divergence_top_k": 50, "kind": "fsd-reducible", "guard": true}, "drafter": {"kind": "draft-model"}, "topology": {"kind": "chain", "length": 5}, "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0}, "max_new_tokens": 128}}','2026-11-21 04:43:36.042128');
INSERT INTO "settings" VALUES('869687ec33096ad8','bundled','FSD reducible · js ≤ 0.3 · γ 5','fsd-reducible',0.3,'{"pair": "bundled", "decoding": {"acceptance": {"divergence": "js", "threshold": 0.3, "divergence_top_k": 50, "kind": "fsd-reducible", "guard": true}, "drafter": {"kind": "draft-model"}, "topology": {"kind": "chain", "length": 5}, "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0}, "max_new_tokens": 128}}','2026-11-21 04:43:36.042537');
CREATE TABLE stream_chunks (
	id INTEGER NOT NULL, 
	job_id VARCHAR(32) NOT NULL, 
	sequence INTEGER NOT NULL, 
	payload JSON NOT NULL, 
	CONSTRAINT pk_stream_chunks PRIMARY KEY (id), 
	CONSTRAINT fk_stream_chunks_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE, 
	CONSTRAINT uq_stream_chunks_job_id UNIQUE (job_id, sequence)
);
CREATE TABLE traces (
	generation_id INTEGER NOT NULL, 
	data BLOB NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_traces PRIMARY KEY (generation_id), 
	CONSTRAINT fk_traces_generation_id_generations FOREIGN KEY(generation_id) REFERENCES generations (id) ON DELETE CASCADE
);
INSERT INTO "traces" VALUES(1,X'1F8B08000000000002038B8E8E36D551308BD55130D4510031CD81CC68A5E292A2CCE412251D05A5E4FCA2A2D4E492CCFC3C25908C819E0150615E694E0E8467A9A360A06708615B80D8C648E2A6B12012A40148C6C60200750E078E6C000000','5966684976417192f9a7473c156ac5092611e31bf27e342f2fce9f9344c11f4b');
CREATE TABLE worker_state (
	id INTEGER NOT NULL, 
	pid INTEGER NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	device VARCHAR(255) NOT NULL, 
	activity VARCHAR(255) NOT NULL, 
	started_at DATETIME NOT NULL, 
	heartbeat_at DATETIME NOT NULL, 
	CONSTRAINT pk_worker_state PRIMARY KEY (id)
);
CREATE INDEX ix_experiments_created_at ON experiments (created_at);
CREATE INDEX ix_jobs_status_priority ON jobs (status, priority, created_at);
CREATE INDEX ix_settings_acceptance ON settings (acceptance);
CREATE INDEX ix_settings_pair ON settings (pair);
CREATE INDEX ix_runs_created_at ON runs (created_at);
CREATE INDEX ix_runs_experiment_id ON runs (experiment_id);
CREATE INDEX ix_runs_setting_id ON runs (setting_id);
CREATE INDEX ix_runs_status ON runs (status);
CREATE INDEX ix_runs_task ON runs (task);
CREATE INDEX ix_stream_chunks_job_id ON stream_chunks (job_id);
CREATE INDEX ix_generations_run_id ON generations (run_id);
COMMIT;
