"""LangChain's own tests of embeddings."""

import pytest

pytest.importorskip("langchain_tests", reason="langchain-tests is not installed")

from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from elmokit.integrations.langchain import ElmoEmbeddings


class TestUnit(EmbeddingsUnitTests):
    @property
    def embeddings_class(self):
        return ElmoEmbeddings


@pytest.mark.anyio
class TestIntegration(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self):
        return ElmoEmbeddings

    @pytest.fixture
    def anyio_backend(self):
        return "asyncio"
