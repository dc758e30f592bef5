"""What training maximises: the surrogate of the paper, and a bound on the likelihood."""
