# Properties of messages: name 0x01 value 0x02, repeated.

cdef struct Indexed:
    # What queues and index are made of; a size of -1: absent. Offsets from the first byte of the properties.
    int32_t tags_at
    int32_t tags_size
    int32_t uniq_at
    int32_t uniq_size
    int32_t keys_at
    int32_t keys_size


cdef inline bint _same(Bytes at, Py_ssize_t size, const char* name, Py_ssize_t length) noexcept nogil:
    return size == length and memcmp(at, name, length) == 0


cdef bint _index(Bytes properties, Py_ssize_t size, Indexed* found, bint sent) noexcept nogil:
    """Find TAGS, UNIQ_KEY and KEYS; False when a pair is not well-formed or one of the three stands twice.

    With `sent` also when a name is there that the broker must look at: all those of broker/messages/send_checks.py and
    some that only begin like them.
    """
    cdef Py_ssize_t at = 0, name_size, value_at, value_size
    cdef Bytes name
    cdef const void* stop
    found.tags_size = found.uniq_size = found.keys_size = -1
    while at < size:
        name = properties + at
        stop = memchr(name, 1, size - at)
        if stop == NULL:
            return False
        name_size = <Bytes>stop - name
        if name_size == 0 or memchr(name, 2, name_size) != NULL:
            return False
        value_at = at + name_size + 1
        stop = memchr(properties + value_at, 2, size - value_at)
        value_size = size - value_at if stop == NULL else <Bytes>stop - (properties + value_at)
        if memchr(properties + value_at, 1, value_size) != NULL:
            return False
        if _same(name, name_size, "TAGS", 4):
            if found.tags_size >= 0:
                return False
            found.tags_at, found.tags_size = <int32_t>value_at, <int32_t>value_size
        elif _same(name, name_size, "UNIQ_KEY", 8):
            if found.uniq_size >= 0:
                return False
            found.uniq_at, found.uniq_size = <int32_t>value_at, <int32_t>value_size
        elif _same(name, name_size, "KEYS", 4):
            if found.keys_size >= 0:
                return False
            found.keys_at, found.keys_size = <int32_t>value_at, <int32_t>value_size
        elif sent and _special(name, name_size, properties + value_at, value_size):
            return False
        at = value_at + value_size + 1
    return True


cdef bint _special(Bytes name, Py_ssize_t size, Bytes value, Py_ssize_t value_size) noexcept nogil:
    cdef unsigned char first = name[0]
    if first == c"W":
        return _same(name, size, "WAIT", 4) and not _same(value, value_size, "true", 4)
    if first == c"_":
        return True
    if first == c"D":
        return size >= 5 and memcmp(name, "DELAY", 5) == 0
    if first == c"T":
        return size >= 5 and (
            memcmp(name, "TIMER", 5) == 0 or memcmp(name, "TRACE", 5) == 0 or memcmp(name, "TRAN_", 5) == 0
        )
    if first == c"P":
        return size >= 4 and memcmp(name, "POP_", 4) == 0
    if first == c"M":
        return size >= 4 and memcmp(name, "MSG_", 4) == 0
    if first == c"C":
        return size >= 7 and memcmp(name, "CLUSTER", 7) == 0
    if first == c"I":
        return size >= 5 and memcmp(name, "INNER", 5) == 0
    return False


cdef bint _ascii(Bytes at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef unsigned char all_bits = 0
    for i in range(size):
        all_bits |= at[i]
    return all_bits < 128


cdef int32_t _hash(Bytes at, Py_ssize_t size) noexcept nogil:
    """Java's String.hashCode of ASCII."""
    cdef Py_ssize_t i
    cdef uint32_t value = 0
    for i in range(size):
        value = 31 * value + at[i]
    return <int32_t>value
