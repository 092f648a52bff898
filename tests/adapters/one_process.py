"""One of two jax processes: load this rank's rows, make the global batches, tell of each what lies here."""

from __future__ import annotations

import json
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import penstock

address, rank, dataset, told = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
jax.distributed.initialize(address, num_processes=2, process_id=rank)
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
total = jax.jit(lambda array: array.sum(), out_shardings=NamedSharding(sharding.mesh, PartitionSpec()))
mine = {"batch_size": 8, "length": 128, "seed": 7, "rank": rank, "world": 2, "workers": 1}
with penstock.load(dataset, **mine) as loader, open(told, "w") as file:
    for _, batch in zip(range(3), loader.to_jax(sharding), strict=False):
        inputs = batch["inputs"]
        shards = sorted(inputs.addressable_shards, key=lambda shard: shard.index[0].start)
        rows = np.concatenate([np.asarray(shard.data) for shard in shards])
        file.write(json.dumps({"shape": inputs.shape, "sum": int(total(inputs)), "rows": rows.tolist()}) + "\n")
