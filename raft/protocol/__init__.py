"""The nouns: what members say to each other, entries and marks, the list of members, settings, events; checked here.

Nothing below decides anything: types are shared with the store, messages and hellos are read field by field, and a
wrong field ends the link that it came by.
"""
