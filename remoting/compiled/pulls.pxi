# Records of one answer to a pull, out of the log's mapping.

cdef extern from "sys/mman.h":
    int mincore(void* at, size_t size, unsigned char* told) nogil

cdef extern from "unistd.h":
    long sysconf(int name) nogil
    int _SC_PAGESIZE

cdef enum:
    # Pages that are asked about at once: 4 MiB, in most places.
    PAGES_MAX = 1024

cdef uint64_t PAGE_BYTES = sysconf(_SC_PAGESIZE)


def in_memory(object view, int64_t at, int64_t size):
    """Tell whether the page cache holds all of some bytes of a mapping."""
    cdef Py_buffer buffer
    cdef bint held
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    held = 0 <= at <= buffer.len - size and size > 0 and _in_memory(<unsigned char*>buffer.buf, &at, &size, 1)
    PyBuffer_Release(&buffer)
    return held


cdef bint _in_memory(
    const unsigned char* view, const int64_t* at, const int64_t* lengths, Py_ssize_t count
) noexcept nogil:
    """Tell whether the page cache holds all pages of `count` pieces of a mapping, which stand in order."""
    cdef unsigned char told[PAGES_MAX]
    cdef uint64_t first = (<uint64_t>view + <uint64_t>at[0]) // PAGE_BYTES
    cdef uint64_t last = (<uint64_t>view + <uint64_t>(at[count - 1] + lengths[count - 1] - 1)) // PAGE_BYTES
    cdef uint64_t page, until
    cdef Py_ssize_t i
    if last - first >= PAGES_MAX or mincore(<void*>(first * PAGE_BYTES), (last - first + 1) * PAGE_BYTES, told) != 0:
        return False
    for i in range(count):
        page = (<uint64_t>view + <uint64_t>at[i]) // PAGE_BYTES
        until = (<uint64_t>view + <uint64_t>(at[i] + lengths[i] - 1)) // PAGE_BYTES
        while page <= until:
            if not told[page - first] & 1:
                return False
            page += 1
    return True


def gather(
    bytes entries not None, object accepts, object view, int64_t start, int64_t end, int64_t hot_from, int32_t filler,
    Py_ssize_t count_max, Py_ssize_t bytes_max, Py_ssize_t copied_max, bint whole, tuple asked, tuple head,
):
    """Return (records one behind the other, their number, entries passed, end of the last record, runs, their size).

    `entries` are those of a queue, 20 bytes each: position, size, code. `view` holds what stands from `start` on, and
    `end` says how far it may be read; what stands before `hot_from` must be in the page cache. `asked`, (topic, queue,
    offset of the first entry, magic, crc32()), when the records are to be judged: `runs` are (position, size) of each
    then, else None. With a `head`, (offset of the first entry, what stands in the header before the offset behind the
    entries passed, and what behind it), the records have a frame around them.
    None when an entry leads out of that or back, or is a `filler`, when no record is wanted, when they are larger than
    `copied_max` or the disk would have to be asked, when one is not right or of another kind, and when the entries end
    before the answer is full and are not the `whole` of what may be looked at.
    """
    cdef Py_ssize_t i, count = 0, size = 0, passed = 0, all_of = PyBytes_GET_SIZE(entries) // 20
    cdef int64_t position, length, behind = start, last = 0, queue_id, offset, until
    cdef int64_t positions[ROWS_MAX]
    cdef int64_t lengths[ROWS_MAX]
    cdef uint32_t magic_1
    cdef Py_buffer buffer
    cdef unsigned char* to
    cdef Bytes entry = <Bytes>PyBytes_AS_STRING(entries)
    cdef bytes made, topic, before = None, after = None
    cdef unsigned char digits[20]
    cdef Py_ssize_t room = 0, digits_size = 0
    cdef list runs = None
    if all_of > ROWS_MAX:
        return None
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if end > start + buffer.len:
            return None
        while passed < all_of:
            position, length = _i64(entry), <int32_t>_u32(entry + 8)
            # In the order of the log, as queues are: else they are not all between the first and the last one.
            if length == filler or length <= 0 or position < behind or position > end - length:
                return None
            behind = position + length
            if accepts is None or _i64(entry + 12) in accepts:
                if count and (count >= count_max or size + length > bytes_max):
                    break
                positions[count], lengths[count] = position - start, length
                count += 1
                size += length
                last = position + length
            passed += 1
            entry += 20
        if count == 0 or size > copied_max or (passed == all_of and count < count_max and not whole):
            return None
        if start + positions[0] < hot_from and not _in_memory(<unsigned char*>buffer.buf, positions, lengths, count):
            return None
        if head is not None:
            offset, before, after = head
            digits_size = _decimal(digits, offset + passed) - digits
            room = 8 + PyBytes_GET_SIZE(before) + digits_size + PyBytes_GET_SIZE(after)
        made = PyBytes_FromStringAndSize(NULL, room + size)
        to = <unsigned char*>PyBytes_AS_STRING(made)
        if head is not None:
            _put32(to, <uint32_t>(room - 4 + size))
            _put32(to + 4, <uint32_t>(room - 8))
            to = _copy(to + 8, before)
            memcpy(to, digits, digits_size)
            to = _copy(to + digits_size, after)
        for i in range(count):
            memcpy(to, <unsigned char*>buffer.buf + positions[i], lengths[i])
            to += lengths[i]
    finally:
        PyBuffer_Release(&buffer)
    if asked is not None:
        # The copy is judged, for it is what leaves.
        topic, queue_id, offset, magic_1, crc32 = asked
        until = offset + passed
        runs = []
        to = <unsigned char*>PyBytes_AS_STRING(made) + room
        for i in range(count):
            position, length = start + positions[i], lengths[i]
            if _judged(to, length, position, topic, queue_id, &offset, until, magic_1, crc32) != length:
                return None
            runs.append((position, length))
            to += length
    return made, count, passed, last, runs, size
