"""The recipes of CONTRIBUTING.md work as they stand there."""

import re
from pathlib import Path

import numpy as np
import pytest

from elmokit import pooling, tokenizers
from elmokit.server import client, routes, schemas

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")


def blocks(title):
    """The code blocks of a section."""
    section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def test_a_pooling_is_added_as_described(model, monkeypatch):
    monkeypatch.setattr(pooling, "POOLINGS", {**pooling.POOLINGS})
    code, test = blocks("Add a pooling")
    exec(code, vars(pooling).copy())
    namespace = {"np": np}
    exec(test, namespace)
    namespace["test_min_pooling_takes_the_smallest_value_of_each_dimension"](model)


def test_a_tokenizer_is_added_as_described(monkeypatch):
    monkeypatch.setattr(tokenizers, "TOKENIZERS", {**tokenizers.TOKENIZERS})
    (code,) = blocks("Add a tokenizer")
    exec(code, vars(tokenizers).copy())
    tokenizer = tokenizers.get_tokenizer("punctuation")
    assert tokenizer.tokenize("No, thanks.") == ["No", ",", "thanks", "."]
    assert tokenizer.split_sentences("One.\n\nTwo.") == ["One.", "Two."]


@pytest.fixture
def extended_service(start_service, language_model, monkeypatch):
    """A service with the route of CONTRIBUTING.md, and the namespace of its client."""
    records, route, method = blocks("Add a route")
    monkeypatch.setattr(routes.router, "routes", [*routes.router.routes])
    added = {**vars(schemas)}
    exec(records, added)
    monkeypatch.setattr(schemas, "LikelihoodRequest", added["LikelihoodRequest"], raising=False)
    monkeypatch.setattr(schemas, "LikelihoodResponse", added["LikelihoodResponse"], raising=False)
    exec(route, {**vars(routes)})
    namespace = {**vars(client)}
    exec(f"class Extended(Client):\n{method}", namespace)
    return start_service(language_model), namespace["Extended"]


def test_a_route_is_added_as_described(extended_service, language_model):
    service, extended_client = extended_service
    texts = ["word1 word2 cat. Word3!"]
    numbers = extended_client(service.url).likelihood(texts)
    scores = language_model.score(language_model.tokenize(texts[0]))
    assert numbers == pytest.approx([score.log_probability for score in scores])
    (example,) = schemas.LikelihoodRequest.model_config["json_schema_extra"]["examples"]
    assert len(service.get_json("/likelihood", example)["log_probabilities"]) == 1
    assert "/likelihood" in service.get_json("/openapi.json")["paths"]
