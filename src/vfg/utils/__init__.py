"""What all rooms use: specs that travel as JSON, files, extras, small linear algebra, cached modules."""
