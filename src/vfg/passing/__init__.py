"""Message passing: from a graph to two batched passes."""
