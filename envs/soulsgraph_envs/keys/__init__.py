"""Keys: bindings from controls to keys, devices that press them, and guards that let no key stay down."""
