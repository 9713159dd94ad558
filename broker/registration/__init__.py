"""What the NameServers are told of this broker, and what they answer."""
