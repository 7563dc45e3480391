"""APIs of other ELMo packages."""
