"""EM of the exact member: E-steps, M-step, starts."""
