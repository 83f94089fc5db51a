"""Prompts of an exact length that no other request has sent: token ids where the API takes them, else words. Pure.

A prefix cache matches from the first token on, so a unique head makes the whole prompt unique; the tail may be shared,
which keeps long contexts cheap to build while the clock runs.
"""

from __future__ import annotations

import random

import msgspec

HEAD = 16
"""Tokens (or words) of a prompt that are its own."""

FIRST_ID, IDS = 1000, 30_000
"""Ids of ordinary tokens in every vocabulary of 32 k or more: above the bytes and special tokens at its start, below
those at its end."""

_STRIDE = 7919
"""Prime, and no divisor of IDS: the first ids of IDS requests in a row all differ."""

_LETTERS = (
    "ableareaarmyawaybabybackballbankbasebearbeatbillbirdblueboatbodybonebookbornbothcallcamecampcardcare"
    "casecashcastchatcityclubcoalcoatcodecoldcomecookcoolcopycorncostcrewdarkdatadatedeaddealdeepdeskdoor"
    "downdrawdustdutyeacheasteasyedgeeveneverfacefactfairfallfarmfastfearfeedfeelfeetfilefillfilmfindfine"
    "firefirmfishfiveflatflowfoodfootformfourfreefullfundgamegategavegiftgirlgivegladgoalgoldgoodgraygrew"
    "growhalfhallhandhanghardheadhearheatheldhelphereherohighhillholdholehomehopehourhugeideainchironjoin"
    "jumpjustkeepkeptkindkingkneeknewknowladylakelandlastlateleadleftlesslifeliftlikelinelistlivelonglook"
    "loseloss"
)
WORDS = tuple(_LETTERS[at : at + 4] for at in range(0, len(_LETTERS), 4))
"""Four letters each: one token with its space in most vocabularies, five bytes in a byte-level one."""


class Prompts:
    """The prompts of one run, as JSON text. `index` counts measured requests up from 0 and warm-up down from -1."""

    def __init__(self, seed: int, length: int, shared: int = 0) -> None:
        """`length` in tokens (or words); the first `shared` of them are the same in every prompt."""
        self.seed = seed
        self.length = max(1, length)
        self.shared = min(max(0, shared), self.length - 1)
        source = random.Random(f"{seed}:body")
        own = self.length - self.shared
        self._offset = source.randrange(IDS)
        self._front = [FIRST_ID + source.randrange(IDS) for _ in range(self.shared)]
        self._back = [FIRST_ID + source.randrange(IDS) for _ in range(max(0, own - HEAD))]
        self._front_json = _inside(self._front)
        self._back_json = _inside(self._back)

    def ids(self, index: int) -> bytes:
        """A JSON array of `length` token ids."""
        parts = (self._front_json, _inside(self._head(index)), self._back_json)
        return b"[" + b",".join(part for part in parts if part) + b"]"

    def words(self, index: int) -> bytes:
        """A JSON string of `length` words."""
        return b'"' + b" ".join(_spelled(ids) for ids in (self._front, self._head(index), self._back) if ids) + b'"'

    def _head(self, index: int) -> list[int]:
        source = random.Random(f"{self.seed}:{index}")
        count = min(HEAD, self.length - self.shared)
        first = FIRST_ID + (self._offset + index * _STRIDE) % IDS
        return [first, *(FIRST_ID + source.randrange(IDS) for _ in range(count - 1))]


def _inside(ids: list[int]) -> bytes:
    return msgspec.json.encode(ids)[1:-1]


def _spelled(ids: list[int]) -> bytes:
    return " ".join(WORDS[number % len(WORDS)] for number in ids).encode()
