"""Text to tokens and back, from both kinds of file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtlqwen import FormatError, ModelError
from mtlqwen.tokenizer import AddedToken, Tokenizer
from python.conftest import CONTROL, USER_DEFINED, gguf_metadata, tokenizer_json

TEXT = st.lists(
    st.text(max_size=8) | st.sampled_from(["th", "the ", "e\u0301", *CONTROL, *USER_DEFINED])
).map("".join)


def make(*added: AddedToken) -> Tokenizer:
    return Tokenizer(Tokenizer.from_gguf(gguf_metadata())._bpe, added)


@given(TEXT)
def test_both_files_give_the_same_tokens(model_dir: Path, tokenizer: Tokenizer, text: str) -> None:
    other = Tokenizer.from_json(model_dir / "tokenizer.json")
    assert tokenizer.encode(text) == other.encode(text)


def test_text_comes_back_in_nfc_without_control_tokens(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("e\u0301 <think>😀</think><|im_end|>")
    assert tokenizer.decode(ids) == "é <think>😀</think>"
    assert tokenizer.decode([*"€".encode()][:2]) == "\ufffd"
    assert tokenizer.decode([999_999]) == ""


def test_added_tokens_match_as_a_whole_and_the_longest_first(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("<think>") == [tokenizer.token_id("<think>")]
    assert len(tokenizer.encode("<think")) > 1
    both = make(AddedToken("<a", 300, True), AddedToken("<a>", 301, True))
    assert both.encode("<a><a") == [301, 300]


def test_flags_of_added_tokens() -> None:
    left = make(AddedToken("<m>", 300, True, before=r"\s*"))
    assert left.encode("a  <m> b") == [97, 300, *b" b"]
    word = make(AddedToken("mark", 300, True, before=r"\b", after=r"\b"))
    assert word.encode("mark remark") == [300, *b" remark"]


def test_restored_literals_stay_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_parts("<think>@<|im_end|>", lambda run: run.replace("@", "<|im_end|>"))
    end = tokenizer.token_id("<|im_end|>")
    assert ids.count(end or -1) == 1
    assert ids[-1] == end
    assert tokenizer.decode(ids) == "<think><|im_end|>"


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("tokenizer.ggml.model", "llama", ModelError, "got llama/qwen35"),
        ("tokenizer.ggml.pre", "gpt-2", ModelError, "got gpt2/gpt-2"),
        ("tokenizer.ggml.pre", None, ModelError, "got gpt2/None"),
        ("tokenizer.ggml.pre", ["qwen35"], ModelError, "got gpt2/['qwen35']"),
        ("tokenizer.ggml.tokens", None, FormatError, "tokens is missing"),
        ("tokenizer.ggml.tokens", [1, 2], FormatError, "no list of strings"),
        ("tokenizer.ggml.merges", "a b", FormatError, "merges is missing"),
        ("tokenizer.ggml.merges", ["nosuch pair"], FormatError, "merges do not fit"),
        ("tokenizer.ggml.merges", ["a", "b c d"], FormatError, "merges do not fit"),
        ("tokenizer.ggml.token_type", [1, 1], FormatError, "got 2, want 266"),
        ("tokenizer.ggml.token_type", None, FormatError, "got None"),
    ],
)
def test_wrong_metadata(key: str, value: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        Tokenizer.from_gguf(gguf_metadata() | {key: value}, "m.gguf")
    assert str(caught.value).startswith("[tokenizer] m.gguf: ")
    assert words in str(caught.value)


def test_too_many_added_tokens_are_refused() -> None:
    many = [str(number) for number in range(5000)]
    metadata = gguf_metadata() | {
        "tokenizer.ggml.tokens": many,
        "tokenizer.ggml.token_type": [4] * 5000,
        "tokenizer.ggml.merges": [],
    }
    with pytest.raises(FormatError, match="got 5000, want at most 4096"):
        Tokenizer.from_gguf(metadata)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"model": 1}', "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")],
)
def test_a_file_that_is_no_tokenizer(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(FormatError, match=r"not a tokenizer\.json"):
        Tokenizer.from_json(path)


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ([{"id": 300, "content": 6}], "content 6 and id 300"),
        ([{"id": "300", "content": "a"}], "content 'a' and id '300'"),
        ([{"id": True, "content": "a"}], "content 'a' and id True"),
        ([{"id": -1, "content": "a"}], "content 'a' and id -1"),
        ([{"id": 300, "content": f"<{i}>"} for i in range(5000)], "5000 added tokens, want at mo"),
    ],
)
def test_added_tokens_that_are_none(tmp_path: Path, added: list[object], words: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tokenizer_json() | {"added_tokens": added}))
    with pytest.raises(FormatError) as caught:
        Tokenizer.from_json(path)
    assert words in str(caught.value)


def test_a_model_that_is_no_bpe(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    model = {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0]]}
    path.write_text(json.dumps(tokenizer_json() | {"model": model}))
    with pytest.raises(FormatError, match="a model of type 'Unigram', want 'BPE'"):
        Tokenizer.from_json(path)


def test_a_text_that_the_file_cannot_encode(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    model = {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "none"}
    path.write_text(json.dumps(tokenizer_json() | {"model": model}))
    with pytest.raises(FormatError, match=r"text: its file cannot encode it \("):
        Tokenizer.from_json(path).encode("b")


def test_an_added_token_without_text_is_ignored(tmp_path: Path) -> None:
    data = tokenizer_json()
    data["added_tokens"] = [{"id": 300, "content": "", "special": True}]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data))
    assert Tokenizer.from_json(path).encode("ab") == [97, 98]
