"""Labels become models that use ELMo."""
