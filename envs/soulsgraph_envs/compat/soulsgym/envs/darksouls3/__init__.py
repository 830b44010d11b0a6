"""SoulsGym's environments of Dark Souls III."""
