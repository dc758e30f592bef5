"""What `speed.py` measures."""
