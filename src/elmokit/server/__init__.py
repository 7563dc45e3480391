"""Requests become answers: the face for programs and browsers."""
