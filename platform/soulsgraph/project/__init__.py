"""Projects of a user's own: begun from a template, checked without training, and what may be named in them."""
