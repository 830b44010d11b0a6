"""Keys: bindings from controls to keys, devices that press them, and the promise that none stays down."""
