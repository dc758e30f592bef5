"""What all rooms use: specs as JSON, files, extras, small linear algebra, cached modules."""
