"""How tokenizer/tokenizer.json was made: a byte-level BPE of 640 tokens, from the texts of this example."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
END = "<|end|>"


def texts() -> list[str]:
    notes = [json.loads(line)["body"] for line in (HERE / "in" / "notes.jsonl").open(encoding="utf-8")]
    return notes + [path.read_text(encoding="utf-8") for path in sorted((HERE / "in" / "letters").iterdir())]


def make() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=640, special_tokens=[END], initial_alphabet=alphabet, min_frequency=2, show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    return tokenizer


if __name__ == "__main__":
    make().save(str(HERE / "tokenizer" / "tokenizer.json"), pretty=False)
    (HERE / "tokenizer" / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}) + "\n")
