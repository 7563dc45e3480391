"""A language model becomes answers: how likely a text is, and which words fit into it."""
