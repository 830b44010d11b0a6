"""What both ends of a fleet share: messages, arrays, tasks, settings and who may connect."""
