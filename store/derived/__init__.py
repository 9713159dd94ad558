"""What is derived from the log and can be made again from it: ConsumeQueues and the index, RocketMQ's files."""
