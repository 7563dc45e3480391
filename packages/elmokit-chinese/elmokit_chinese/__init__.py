"""chinese, an ELMo model."""
