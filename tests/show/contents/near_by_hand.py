"""A dataset as near_dedup will leave it, by brute force: python fake.py FOLDER JOB-INPUT"""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

import penstock
from penstock.base.stores import open_store
from penstock.shards.columns import commit_file
from penstock.shards.manifest import read_manifest, write_manifest
from penstock.shards.origins import read_origins


def shingles(text, n=5):
    w = text.split()
    return {tuple(w[i : i + n]) for i in range(max(1, len(w) - n + 1))}


def fake(inputs, output, threshold=0.8, **keys):
    penstock.run(
        {
            "input": inputs,
            "output": output,
            "stages": ["clean"],
            "memory": "1GB",
            "workers": 0,
            "provenance": True,
            **keys,
        }
    )
    store = open_store(output)
    manifest = read_manifest(store)
    table = read_origins(store, manifest)
    docs = [(table.of(r["_origin"]), r["_origin_hash"], shingles(r["text"])) for r in penstock.open(output)]
    docs.sort(key=lambda d: d[0])
    stayed, rows = [], []
    for o, h, s in docs:
        for so, sh, ss in stayed:
            j = len(s & ss) / len(s | ss)
            if j >= threshold:
                rows.append((o.source, o.file, o.position, so.source, so.file, so.position, j, h, sh))
                break
        else:
            stayed.append((o, h, s))
    f = pa.dictionary(pa.int32(), pa.string())
    types = [
        ("source", pa.int32()),
        ("file", f),
        ("position", pa.int64()),
        ("survivor_source", pa.int32()),
        ("survivor_file", f),
        ("survivor_position", pa.int64()),
        ("similarity", pa.float64()),
        ("hash", pa.uint64()),
        ("survivor_hash", pa.uint64()),
    ]
    cols = list(zip(*rows)) or [()] * 9
    t = pa.table(
        [
            pa.array(c, pa.string()).dictionary_encode().cast(k) if n.endswith("file") else pa.array(c, k)
            for (n, k), c in zip(types, cols)
        ],
        schema=pa.schema(types),
    )
    sink = pa.BufferOutputStream()
    pq.write_table(t, sink)
    facts = {
        "documents": len(docs),
        "removed": len(rows),
        "candidates": len(rows) + 3,
        "similar": len(rows) + 1,
        "not_compared": 0,
        "sources": [
            {"source": s, "documents": sum(d[0].source == s for d in docs), "removed": sum(r[0] == s for r in rows)}
            for s in sorted({d[0].source for d in docs})
        ],
        "threshold": threshold,
        "bands": 20,
        "rows": 6,
        "detection": 1 - (1 - threshold**6) ** 20,
    }
    new = [
        commit_file(store, "duplicates/00000.parquet", sink.getvalue().to_pybytes()),
        commit_file(store, "artifacts/near_duplicates.json", json.dumps(facts).encode()),
    ]
    write_manifest(store, replace(manifest, artifacts=tuple(sorted([*manifest.artifacts, *new], key=lambda e: e.file))))
