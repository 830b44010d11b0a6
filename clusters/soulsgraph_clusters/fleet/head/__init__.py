"""What runs on the head: the gateway and its journal, the learner that reads it, and what people see of both."""
