"""Files become labelled examples."""
