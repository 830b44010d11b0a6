"""Pictures, windows and video: shapes on a canvas, a fight seen from above, and the palette of both."""
