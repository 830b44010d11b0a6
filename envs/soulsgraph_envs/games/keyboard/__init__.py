"""Keys and windows of Windows and X11, and key bindings."""
