"""elmokit inside other tools: a module for each, which needs the extra of that name."""
