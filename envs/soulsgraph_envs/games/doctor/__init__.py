"""What this machine and a game can do, checked one by one."""
