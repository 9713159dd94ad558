"""The broker's tables (topics, consumer groups, offsets, delays), and how each change reaches a group or a slave."""
