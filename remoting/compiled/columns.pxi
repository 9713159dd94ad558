# What the records of a batch, tuples of eleven, leave in queues, index and statistics.

def by_queue(list batch):
    """Return [topic, queue id, first offset, first position, end of the last record, entries] of each queue.

    None when the offsets of one queue do not follow one another, or its records do not stand behind one another.
    """
    cdef Py_ssize_t i
    cdef int64_t offset, position, end, size
    cdef dict queues = {}
    cdef list found = [], group
    cdef tuple row
    for i in range(len(batch)):
        row = <tuple>batch[i]
        key = (row[0], row[1])
        offset, position, size = row[2], row[3], row[4]
        known = queues.get(key)
        if known is None:
            group = [row[0], row[1], offset, position, position + size, [(row[3], row[4], row[5])]]
            queues[key] = group
            found.append(group)
            continue
        group = <list>known
        end = group[4]
        if offset != <int64_t>group[2] + len(<list>group[5]) or position < end:
            return None
        group[4] = position + size
        (<list>group[5]).append((row[3], row[4], row[5]))
    return found


def pack_entries(list entries):
    """Return (position, size, code) of each as 8, 4 and 8 bytes."""
    cdef Py_ssize_t i
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, 20 * len(entries))
    cdef unsigned char* to = <unsigned char*>PyBytes_AS_STRING(packed)
    cdef tuple entry
    cdef int64_t position, code
    cdef int32_t size
    for i in range(len(entries)):
        entry = <tuple>entries[i]
        position, size, code = entry[0], entry[1], entry[2]
        _put64(to, <uint64_t>position)
        _put32(to + 8, <uint32_t>size)
        _put64(to + 12, <uint64_t>code)
        to += 20
    return packed


def index_columns(list batch, dict prefixes, int left_out):
    """Return (hashes, positions, timestamps) of all keys, as native 64-bit numbers; None when one is not ASCII.

    `prefixes`: by topic, the hash of what stands before a key, and 32 bits above it of what stands before a tag; None
    also when a topic is not there. Records with all bits of `left_out` in the sysFlag are left out.
    """
    cdef Py_ssize_t i, room = 3 * len(batch), count = 0, start, at, size
    cdef int64_t* hashes
    cdef int64_t* places
    cdef int64_t* times
    cdef int64_t position, stamp
    cdef uint64_t both
    cdef tuple row
    cdef bytes piece, one, two, three
    cdef Bytes text
    for i in range(len(batch)):
        room += (<bytes>(<tuple>batch[i])[8]).count(b" ")
    one = PyBytes_FromStringAndSize(NULL, 8 * room)
    two = PyBytes_FromStringAndSize(NULL, 8 * room)
    three = PyBytes_FromStringAndSize(NULL, 8 * room)
    hashes = <int64_t*>PyBytes_AS_STRING(one)
    places = <int64_t*>PyBytes_AS_STRING(two)
    times = <int64_t*>PyBytes_AS_STRING(three)
    for i in range(len(batch)):
        row = <tuple>batch[i]
        if <int>row[9] & left_out == left_out:
            continue
        prefix = prefixes.get(row[0])
        if prefix is None:
            return None
        both, position, stamp = prefix, row[3], row[6]
        for which in range(3):
            piece = <bytes>(row[7] if which == 0 else row[8] if which == 1 else row[10])
            text, size = <Bytes>PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece)
            if not _ascii(text, size):
                return None
            start = 0
            for at in range(size + 1):
                # Words of KEYS are keys each.
                if at < size and (which != 1 or text[at] != c" "):
                    continue
                if at > start:
                    hashes[count] = _key_hash(<uint32_t>(both >> 32 if which == 2 else both), text + start, at - start)
                    places[count], times[count] = position, stamp
                    count += 1
                start = at + 1
    return one[: 8 * count], two[: 8 * count], three[: 8 * count]


cdef int64_t _key_hash(uint32_t value, Bytes at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t hashed
    for i in range(size):
        value = 31 * value + at[i]
    hashed = <int32_t>value
    if hashed < 0:
        hashed = -hashed
    if hashed > 0x7FFFFFFF:
        return 0
    return hashed


def sums(list batch):
    """Return ({topic: [records, bytes]}, all bits that are set in any sysFlag)."""
    cdef Py_ssize_t i, size
    cdef int flags = 0
    cdef dict found = {}
    cdef list entry = None
    cdef tuple row
    last = None
    for i in range(len(batch)):
        row = <tuple>batch[i]
        if row[0] is not last:
            last = row[0]
            known = found.get(last)
            if known is None:
                known = found[last] = [0, 0]
            entry = <list>known
        entry[0] = <Py_ssize_t>entry[0] + 1
        entry[1] = <Py_ssize_t>entry[1] + <Py_ssize_t>row[4]
        flags |= <int>row[9]
    return found, flags
