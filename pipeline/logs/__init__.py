"""What members leave: store folders read as columns, records, entries, queues and what is missing between them."""
