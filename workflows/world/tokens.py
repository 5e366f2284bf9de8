"""A word-level tokenizer of the toy world: `<pad> <bos> <eos> <sep> <op>` and one token per number."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from workflows.world.sorting import BOS, EOS, PAD, SEP, SPECIALS, SortingWorld

CHAT_TEMPLATE = "{{ bos_token }}{% for message in messages %} {{ message['content'] }}{% endfor %} " + SEP


def build(world: SortingWorld) -> PreTrainedTokenizerFast:
    """The tokenizer; its chat template renders a prompt as `<bos> 17 4 199 <sep>`."""
    words = [*SPECIALS, *(str(number) for number in range(world.limit))]
    # <pad> stands for unknown words too: a row of its own would take probability that no training removes.
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token=PAD))
    core.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=PAD,
        additional_special_tokens=list(SPECIALS[3:]),
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save(world: SortingWorld, folder: Path) -> None:
    """Write the tokenizer into a folder."""
    build(world).save_pretrained(folder)
