"""Model cards: Markdown, with metadata for the Hugging Face Hub in front of it, as YAML."""

import json
import re
from collections.abc import Sequence

_METADATA = re.compile(r"\s*---[ \t]*\r?\n(.*?\n)??---[ \t]*(\r?\n|$)[\r\n]*", re.DOTALL)

# The identifiers of common licences on the Hub; for any other it has "other" and a name.
_LICENCES = {
    "afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bsd-2-clause", "bsd-3-clause",
    "bsl-1.0", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0",
    "cc-by-nc-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0",
    "cc-by-nd-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0", "eupl-1.2", "gfdl", "gpl-2.0",
    "gpl-3.0", "isc", "lgpl-2.1", "lgpl-3.0", "mit", "mpl-2.0", "odbl", "ofl-1.1", "unknown",
    "unlicense",
}  # fmt: skip


def with_metadata(card: str, *, languages: Sequence[str] = (), licence: str = "") -> str:
    """The card, with metadata in front of it; a card that has metadata stays as it is."""
    if _METADATA.match(card):
        return card
    facts = {
        **describe(languages, licence),
        "library_name": "elmokit",
        "pipeline_tag": "feature-extraction",
        "tags": ["elmo", "contextual-embeddings"],
    }
    # A value in JSON is one in YAML, and the code of Norwegian is no longer the word "no".
    lines = (f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in facts.items())
    return f"---\n{''.join(lines)}---\n\n{card}"


def describe(languages: str | Sequence[str], licence: str) -> dict[str, object]:
    """What the metadata say of a model's languages (ISO 639) and its licence; "" if unknown."""
    languages = [languages] if isinstance(languages, str) and languages else list(languages)
    facts: dict[str, object] = {"language": languages} if languages else {}
    if licence:
        identifier = re.sub("-(only|or-later)$", "", licence.lower().replace(" ", "-"))
        facts["license"] = identifier if identifier in _LICENCES else "other"
        if facts["license"] == "other":
            facts["license_name"] = licence
    return facts


def without_metadata(card: str) -> str:
    """The text of a card."""
    return _METADATA.sub("", card, count=1) if _METADATA.match(card) else card
