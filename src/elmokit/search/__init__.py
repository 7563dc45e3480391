"""Search by vectors, and pictures of them."""
