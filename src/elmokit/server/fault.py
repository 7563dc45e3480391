"""What is wrong with a body becomes one sentence."""

from typing import Any

from fastapi.exceptions import RequestValidationError


def fault_of(error: RequestValidationError) -> str:
    """Where a body is wrong, what was found there, and what was expected."""
    first = error.errors()[0]
    place, found, known = "the body", error.body, ["body"]
    for part in first["loc"][1:]:
        if not _leads_on(found, part):
            break  # the name of a field that is missing, or of a form that was tried
        found = found[part]
        place = str(part) if len(known) == 1 else f"{place}[{part}]"
        known.append(part)
    if error.body is None:
        return "the body is empty, expected JSON"
    if first["type"] == "missing":
        return f"{place}: {first['loc'][-1]} is missing"
    if first["type"] == "unexpected_keyword_argument":
        return f"{place} is no setting of this route"
    here = (e["msg"] for e in error.errors() if [*e["loc"][: len(known)]] == known)
    wanted = dict.fromkeys(message[:1].lower() + message[1:] for message in here)
    return f"{place} is {_shown(found)}: {', or '.join(wanted)}"


def _leads_on(found: Any, part: Any) -> bool:
    if isinstance(found, dict):
        return part in found
    return isinstance(found, list) and isinstance(part, int) and part < len(found)


def _shown(found: Any) -> str:
    text = ascii(found)
    return text if len(text) <= 60 else f"{text[:60]}…"
