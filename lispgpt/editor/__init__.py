"""What editors ask of a program: layout, diagnostics, meanings, places; and the server that answers them."""
