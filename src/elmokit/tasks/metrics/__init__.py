"""Predictions and gold become numbers: plain Python and numpy."""
