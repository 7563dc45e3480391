"""HTTP service: `elmo serve`, and a client for Python programs."""
