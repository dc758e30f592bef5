"""Times of flows, training and filling."""
