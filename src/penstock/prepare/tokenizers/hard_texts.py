"""Hard texts: what tokenizers disagree about. An engine is held against Hugging Face's own library on all of them.

Each group is a place where a fast engine has its own code for what the definition does by a general regular expression,
a Unicode table or a trie: white space, digits, contractions, scripts, normalisation, special tokens.
"""

# ruff: noqa: RUF001

from collections.abc import Iterable, Iterator

# fmt: off
_SPACES = (
    " \t\n\r\v\f\x1c\x1f\x85\xa0\u1680\u180e\u2002\u2007\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
)
_CONTRACTIONS = "'s 't 're 've 'm 'll 'd 'S 'LL 'Re 'ſ ’s ’ll 'x ''s '"
_WORDS = """
Hello hello HELLO HelloWorld helloWorld HTTPServer iPhone XMLHttpRequest snake_case __dunder__ kebab-case CamelCASEword
naïve café Straße ẞ ŁÓDŹ ﬁne ﬃ İstanbul ıI ǅ ǆ ʼn ŉ Ǆ ß ſ \u212a \u212b \u2126 µ ² ½ Ⅷ ⅷ ① 𝟙 𝒜𝓑 ℵ ª º ʰ ʲ ˈ ʔ ꟼ
Привет мир ПРИВЕТ ёж Ελληνικά ΣΊΣΥΦΟΣ ς ქართული ႠႡ Հայերեն עברית שָׁלוֹם العربية ﷽ ﻼ اَلْعَرَبِيَّةُ فارسی\u200cها
हिन्दी क्षत्रिय ज\u093c क\u093c বাংলা ਪੰਜਾਬੀ தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල ภาษาไทย น้ำ กำ ລາວ བོད་ မြန်မာ ខ្មែរ አማርኛ
한국어 각 \u1100\u1161\u11a8 한글ᄒ 日本語 にほんご ニホンゴ ﾊﾟ パ 中文 繁體 龥龦 㐀 𠀀 𪜶 豈 﨑
"""
_MARKS = (
    "e\u0301", "\u00e9", "a\u0323\u0307", "a\u0307\u0323", "\u1e9b\u0323", "\u0344", "\u0958", "\u2126", "\u212b",
    "\u0301", " \u0301", "\n\u0301", "1\u0301", "\u0301\u0301\u0301", "q\u0307\u0323x", "\u1100\u1161\u11a8",
    "\uac00\u11a8", "\u0f71\u0f72", "\u3099か\u3099", "x\u20dd", "\u05d0\u05b7", "o\u0302\u0323\u0301", "\ufb1d",
    "\u0cc6\u0cc2",
)
_PICTURES = (
    "🙂", "🙂🙂🙂", "👨‍👩‍👧‍👦", "👩🏽‍🚀", "🏳️‍🌈", "🇩🇪🇫🇷🇯🇵", "1️⃣", "#️⃣", "❤️", "❤", "🧑🏿‍🤝‍🧑🏻", "🫠🫡", "©®™",
    "a🙂b", " 🙂 ", "🙂\n", "\u200d", "\ufe0f", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "🀄🃏", "𐍈𐌰𐌹", "𓀀𓀁", "😀" * 40,
)
_SIGNS = """
!"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ¡¿§¶ “quoted” ‘single’ «guillemets» „low“ … — – ‑ · • ● ★ ☆ → ⇒ ∑ ∫ √ ∞ ≠ ± × ÷ ° €
£ ¥ ₹ ₿ ♥ █ ░ ┌─┐ 、。「」・〜！？：；（） ٪ ؟ ، । ॥ ๛ ᠂ ፡
"""
_NUMBERS = (
    "0", "7", "42", "123", "1234", "12345", "123456", "1234567", "12345678901234567890", "3.14159", "1,000,000",
    "-1e-9", "0x1F", "1st 2nd", "2024-01-31T23:59:59Z", "192.168.0.1", "::1", "fe80::1%eth0", "٣٤٥٦", "१२३४",
    "４２４２", "二〇二四", "ⅣⅤ", "x86_64", "a1b2c3", "1a2b", "٠" * 7, "𝟘𝟙𝟚𝟛", "½¼¾", "1²3³", "९" * 10,
)
_CODE = (
    "def f(x: int) -> int:\n    return x + 1\n\n\nclass A:\n\tpass\n",
    "for (int i = 0; i < n; ++i) {\r\n\t\tsum += a[i];\r\n}\r\n",
    "<div class=\"a b\" data-x='1'>&nbsp;&amp;&#160;</div>\n<!-- x -->",
    "SELECT *\n  FROM t\n WHERE a <> 'it''s' -- why\n;",
    '{"a":[1,2.5e3,null,true],"b":{"c":"\\u00e9\\n"}}',
    "https://user:pw@example.org:8080/a/b%20c?q=1&r=%F0%9F%99%82#frag",
    "C:\\Program Files\\x\\y.txt /usr/local/bin ../../a ~/.b",
    "$x = @$y->{'z'}[0] =~ s/\\d+/<$&>/g;",
    "a<-b; c->d; e=>f; g|>h; i:=j; k!=l; m===n; o??p; q?.r",
    "\\begin{equation} E = mc^{2} \\label{eq:1} \\end{equation}",
    "# Title\n\n* item\n* item\n\n```py\nx\n```\n\n| a | b |\n|---|---|\n",
    "\x1b[31mred\x1b[0m\r\rover\b\b",
    "a\tb\tc\n\td\n\t\te  \n  \n \t \n\n\n\nf",
    "TODO(me): fix!!! ??? ... ---- ==== **** ____ //// \\\\\\\\",
)
_PLAIN = (
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", "\r", "\n\r", "\t", "\t\t", " \n", "\n ",
    " \n \n ", "a ", " a", "  a", "   a  b   c    ", "a\n", "\na", "a\n\nb", "a \n\n b", "a\r\nb\r\n",
    "a \r\n \r\n b", "a\n \nb", "\t a", "a\u3000b", "a \u3000b", "a\xa0b", "a \xa0 b", "\xa0\xa0a", "a\u2028b",
    "a\u200bb", "\ufeffa", "a\ufeff", "a\x85b", "\0", "a\0b", "\0\0\0", "\x01\x02\x03", "\x7f", "\x80\x9f",
    "\ufffd", "\ufffe\uffff", "\ue000\uf8ff", "\U000f0000\U0010fffd", "\U0001fffe", "\U000e0001", "\u2581",
    "\u2581a", "a\u2581\u2581b", " \u2581 ", "Ġ", "Ġa", "Ċ", "ĉ", "Ā", "##a", "a##b", "\u2581\u2581\u2581",
    "<0x0A>", "<0x00>", "<unk>", "<s>", "</s>", "<pad>", "[UNK]", "[CLS]", "[SEP]", "<|endoftext|>",
    "<|im_start|>user\nhi<|im_end|>\n", "<|begin_of_text|>", "<|endoftext|", "|endoftext|>", "< |endoftext|>",
    "<bos>", "<eos>", "<start_of_turn>", "[INST]", "<mask>",
)
_RUNS = (("a", 5000), ("ab", 700), (" ", 3000), ("\n", 600), ("\t", 300), (" \n", 300), ("=", 2000), ("9", 700))
# fmt: on


def hard_texts(added_tokens: Iterable[str]) -> list[str]:
    """Texts for every tokenizer, and some around tokens that it itself has added."""
    words, signs = _WORDS.split(), _SIGNS.split()
    texts = [*_PLAIN, *words, *_MARKS, *_PICTURES, *_NUMBERS, *_CODE, *signs]
    texts += [" ".join(words), "".join(words), "\n".join(words), "".join(_MARKS), "x".join(_MARKS), " ".join(signs)]
    texts += [f"a{space}b{space}{space}c{space}" for space in _SPACES]
    texts += [f"{space} {space}\n{space}x 1{space}." for space in _SPACES]
    texts += [f"I{ending} we{ending}a IT{ending} 1{ending} {ending}" for ending in _CONTRACTIONS.split()]
    texts += _long_texts()
    for token in added_tokens:
        texts += [token, f"a{token}b", f" {token} \n{token}{token}", token[:-1], token[1:]]
    return texts


def _long_texts() -> Iterator[str]:
    """Without a place to cut: where engines change from one way of merging to another."""
    for unit, count in _RUNS:
        yield unit * count
        yield "x" + unit * count + "y"
    for unit in ("中", "ก", "é", "e\u0301", "🙂", "ا", "\u3000", "\xa0", "\0"):
        yield unit * 300
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    yield "".join(letters[i * i * 7 % 26] for i in range(4000))
    yield " ".join(letters[i % 26 :][: 1 + i % 9] for i in range(600))
    yield "".join(chr(code) for code in range(0x20, 0x600))
    yield " ".join(chr(code) for code in range(0xA0, 0x600))
    yield "".join(chr(code) for code in range(0x4E00, 0x5000))
    yield "".join(chr(code) for code in range(0x1F300, 0x1F600))
