"""Text: what the passes of a text job hand on to each other, and what is left when they are done. Called by run.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.base.files import Folder
from penstock.base.fingerprint import fingerprint
from penstock.prepare.keying import FromKeys, new_keys
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.packing import FromTokens
from penstock.prepare.passes import packer_of
from penstock.prepare.plan import Pass, Plan
from penstock.prepare.sinks import ShardsInto
from penstock.prepare.stages.dedup import Found, Remembering
from penstock.prepare.stages.tokenize import Located
from penstock.prepare.text_sinks import CONTENT, COUNTED, Counted
from penstock.prepare.token_stream import TokenPart
from penstock.prepare.tokenizers.file import read_unchanged
from penstock.shards.columns import FileFacts, commit_file

SUMMARY, TOKENIZER = "artifacts/text.json", "artifacts/tokenizer.json"


def spills_of(each: Pass, rows: Mapping[str, LedgerRow]) -> tuple[FileFacts, ...]:
    spills = [rows[task.name].spill for task in each.tasks]
    return tuple(spill for spill in spills if spill)


def keys_of(each: Pass, plan: Plan, rows: Mapping[str, LedgerRow]) -> FromKeys:
    """What the pass before has hashed."""
    stage = plan.survey.stages[each.cut.last]
    remembered = stage.remembered if isinstance(stage, Remembering) else None
    keys = spills_of(plan.passes[each.cut.number - 1], rows)
    return FromKeys(each.cut.number, keys, remembered, len(each.tasks))


def tokens_of(plan: Plan, rows: Mapping[str, LedgerRow]) -> FromTokens:
    """What the pass before has tokenized."""
    pack = packer_of(plan.survey.stages)
    assert pack
    before = [rows[task.name] for task in plan.passes[-2].tasks]
    parts = [_part(row, row.spill) for row in before if row.spill]
    assert plan.config.format in ("safetensors", "npy")
    into = ShardsInto(plan.survey.output, plan.splits, plan.config.format, len(plan.passes[-1].tasks), None)
    return FromTokens(tuple(parts), pack, into)


def _part(row: LedgerRow, file: FileFacts) -> TokenPart:
    counted = row.states[COUNTED].items()
    tokens = {split: sum(each["tokens"] for each in sources.values()) for split, sources in counted}
    return TokenPart(file, tokens, fingerprint(row.states[CONTENT]))


def text_artifacts(plan: Plan, folder: Folder, rows: Mapping[str, LedgerRow]) -> list[FileFacts]:
    """The tokenizer, so that a dataset tells what its tokens mean, and how many documents of which length it has."""
    facts = []
    for stage in plan.survey.stages:
        if isinstance(stage, Located):
            facts.append(commit_file(folder, TOKENIZER, read_unchanged(stage.file)))
    if packer_of(plan.survey.stages):
        summary = json.dumps(_summary([rows[task.name] for task in plan.passes[-2].tasks]), indent=1)
        facts.append(commit_file(folder, SUMMARY, summary.encode() + b"\n"))
    return facts


def _summary(rows: list[LedgerRow]) -> dict[str, Any]:
    """By split and source: documents, tokens, and how many documents have up to 0, 1, 3, 7, ... tokens."""
    splits: dict[str, dict[str, Counted]] = {}
    for row in rows:
        for split, sources in row.states[COUNTED].items():
            found = splits.setdefault(split, {})
            for source, counted in sources.items():
                found.setdefault(source, Counted()).merge(counted)
    return {
        split: {source: vars(counted) for source, counted in sorted(sources.items(), key=lambda each: int(each[0]))}
        for split, sources in splits.items()
    }


def remember(plan: Plan, folder: Folder, artifacts: Mapping[int, Any]) -> None:
    """Keep the keys that are new for the jobs that come later."""
    for number, stage in enumerate(plan.survey.stages):
        if isinstance(stage, Remembering):
            found = artifacts[number]
            assert isinstance(found, Found)
            stage.remembered.save(new_keys(folder, found.losers))
