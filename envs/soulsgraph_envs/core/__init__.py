"""What every part of the world speaks: state, controls, the game contract, errors, scenarios, data files."""
