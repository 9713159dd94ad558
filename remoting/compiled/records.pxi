# Records that others have written: a follower's look at an entry.

cdef Py_ssize_t _covered_until(Bytes all, Py_ssize_t end, int64_t position, int64_t count, Py_ssize_t fixed,
                               uint32_t magic_1, uint32_t magic_2) noexcept nogil:
    """Return -1 when `count` records stand in `end` bytes back to back, the first at `position`; else where not."""
    cdef Py_ssize_t at = 0, size
    cdef int64_t i
    cdef uint32_t magic
    if position > INT64_MAX - end:
        return 0
    for i in range(count):
        if end - at < fixed:
            return at
        size = <int32_t>_u32(all + at)
        magic = _u32(all + at + 4)
        if (magic != magic_1 and magic != magic_2) or size < fixed or size > end - at:
            return at
        if _i64(all + at + 28) != position + at:
            return at
        at += size
    return -1 if at == end else at


def check_covered(const unsigned char[::1] view, int64_t position, Py_ssize_t count, Py_ssize_t fixed,
                  uint32_t magic_1, uint32_t magic_2):
    """Return -1 when `view` holds `count` records back to back, the first at `position`; else where it does not."""
    cdef Py_ssize_t end = view.shape[0]
    if end == 0:
        return -1 if count == 0 else 0
    return _covered_until(&view[0], end, position, count, fixed, magic_1, magic_2)


def read_covered(object dispatched_type, bytes data not None, Py_ssize_t at, Py_ssize_t count, dict topics,
                 uint32_t magic_1):
    """Return what is dispatched of records that stand back to back from `at` on; None when one is not usual.

    `topics` has the names of topics by their bytes: one that is not there is not usual.
    """
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data), i, size, head, name_at, name_size, text_at, text_size
    cdef Bytes whole = <Bytes>PyBytes_AS_STRING(data)
    cdef Bytes here, text
    cdef int32_t queue_id, sys_flag, body_size
    cdef Indexed indexed
    cdef list batch = []
    cdef bytes none = b"", name, last_name = None
    topic = None
    for i in range(count):
        if at < 0 or end - at < 88:
            return None
        here = whole + at
        size = <int32_t>_u32(here)
        if size < 88 or size > end - at:
            return None
        sys_flag = <int32_t>_u32(here + 36)
        head = 88 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
        if size < head + 3:
            return None
        body_size = <int32_t>_u32(here + head - 4)
        if body_size < 0 or body_size > size - head - 3:
            return None
        name_at = head + body_size
        if _u32(here + 4) == magic_1:
            name_size = here[name_at]
            name_at += 1
        else:
            if size - name_at < 4:
                return None
            name_size = (here[name_at] << 8) | here[name_at + 1]
            name_at += 2
        text_at = name_at + name_size + 2
        if text_at > size:
            return None
        if last_name is None or name_size != PyBytes_GET_SIZE(last_name) or memcmp(
            PyBytes_AS_STRING(last_name), here + name_at, name_size
        ) != 0:
            name = (<char*>here + name_at)[:name_size]
            topic = topics.get(name)
            if topic is None:
                return None
            last_name = name
        text = here + text_at
        text_size = size - text_at
        if not _index(text, text_size, &indexed, False):
            return None
        queue_id = <int32_t>_u32(here + 12)
        tags = uniq = keys = none
        code = 0
        if indexed.tags_size > 0:
            if not _ascii(text + indexed.tags_at, indexed.tags_size):
                return None
            tags = (<char*>text + indexed.tags_at)[: indexed.tags_size]
            code = _hash(text + indexed.tags_at, indexed.tags_size)
        if indexed.uniq_size > 0:
            uniq = (<char*>text + indexed.uniq_at)[: indexed.uniq_size]
        if indexed.keys_size > 0:
            keys = (<char*>text + indexed.keys_at)[: indexed.keys_size]
        batch.append(_eleven(
            dispatched_type, topic, queue_id, _i64(here + 20), _i64(here + 28), size, code,
            _i64(here + 48 + (20 if sys_flag & 0x10 else 8)), uniq, keys, sys_flag, tags
        ))
        at += size
    return batch


cdef Py_ssize_t _whole_record(Bytes here, Py_ssize_t room, int64_t position, uint32_t magic_1, bint check_crc,
                              object crc32, Py_ssize_t* name_at, Py_ssize_t* stamp_at) except -2:
    """Return the size of the record of the first kind at the begin of `room` bytes, -1 when it is none or not right.

    And where its topic begins, and its store timestamp.
    """
    cdef Py_ssize_t size, head, body_size, topic_end, end
    cdef uint32_t flags, crc
    if room < 91:
        return -1
    size = <int32_t>_u32(here)
    if _u32(here + 4) != magic_1 or size > room:
        return -1
    flags = _u32(here + 36)
    head = 88 + (12 if flags & 0x10 else 0) + (12 if flags & 0x20 else 0)
    if size < head + 3 or _i64(here + 28) != position:
        return -1
    body_size = <int32_t>_u32(here + head - 4)
    if body_size < 0 or body_size > size - head - 3:
        return -1
    name_at[0] = head + body_size + 1
    stamp_at[0] = 68 if flags & 0x10 else 56
    topic_end = name_at[0] + here[name_at[0] - 1]
    if topic_end + 2 > size:
        return -1
    end = topic_end + 2 + ((here[topic_end] << 8) | here[topic_end + 1])
    if end != size:
        return -1
    if check_crc:
        # As check_record() has it: zeros that no CRC covers are of a page that was not written.
        if (end > topic_end + 2 and here[end - 1] == 0) or here[name_at[0]] == 0 or here[topic_end - 1] == 0:
            return -1
        if body_size <= CRC_HERE_MAX:
            crc = _crc32(here + head, body_size)
        else:
            crc = crc32(PyMemoryView_FromMemory(<char*>here + head, body_size, PyBUF_READ))
        if (crc ^ _u32(here + 8)) & 0x7FFFFFFF:
            return -1
    return size


def check_record(const unsigned char[::1] view, Py_ssize_t at, int64_t position, bint check_crc, uint32_t magic_1,
                 object crc32):
    """Return (size, store timestamp) of the record at `at`, None when it is of another kind or anything is wrong."""
    cdef Py_ssize_t name_at, stamp_at, size, room = view.shape[0] - at
    if at < 0 or room < 91:
        return None
    size = _whole_record(&view[at], room, position, magic_1, check_crc, crc32, &name_at, &stamp_at)
    return None if size < 0 else (size, _i64(&view[at + stamp_at]))


cdef Py_ssize_t _judged(Bytes here, Py_ssize_t room, int64_t position, bytes topic, int64_t queue_id, int64_t* offset,
                        int64_t end, uint32_t magic_1, object crc32) except -2:
    """Return the size of a record which is whole and one of a queue's, and its offset + 1; -1 of another one.

    Its offset is one from `offset` to before `end`.
    """
    cdef Py_ssize_t name_at, stamp_at
    cdef Py_ssize_t size = _whole_record(here, room, position, magic_1, True, crc32, &name_at, &stamp_at)
    cdef int64_t own
    if size < 0:
        return -1
    own = _i64(here + 20)
    if <int32_t>_u32(here + 12) != queue_id or own < offset[0] or own >= end:
        return -1
    if here[name_at - 1] != PyBytes_GET_SIZE(topic) or memcmp(here + name_at, PyBytes_AS_STRING(topic), here[name_at - 1]):
        return -1
    offset[0] = own + 1
    return size


def judge_record(const unsigned char[::1] view, Py_ssize_t at, int64_t position, bytes topic not None,
                 int64_t queue_id, int64_t offset, int64_t end, uint32_t magic_1, object crc32):
    """Return (size, offset behind it) of the record at `at`, which is whole and one of a queue's; None of another one."""
    cdef Py_ssize_t size, room = view.shape[0] - at
    if at < 0 or room < 91:
        return None
    size = _judged(&view[at], room, position, topic, queue_id, &offset, end, magic_1, crc32)
    return None if size < 0 else (size, offset)


def judge_runs(list runs not None, list buffers not None, bytes topic not None, int64_t queue_id, int64_t offset,
               int64_t end, uint32_t magic_1, object crc32):
    """Judge the records of an answer; return how many runs are right, before the first that is not, and the offset there.

    `runs`: (position, size) of each of `buffers`.
    """
    cdef Py_ssize_t number = 0, at, size, taken
    cdef int64_t position, reached
    cdef Py_buffer buffer
    for run, data in zip(runs, buffers):
        position, size = run
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            if buffer.len != size:
                break
            at, reached = 0, offset
            while at < size:
                taken = _judged(
                    <Bytes>buffer.buf + at, size - at, position + at, topic, queue_id, &reached, end, magic_1, crc32
                )
                if taken < 0:
                    break
                at += taken
            if at < size:
                break
        finally:
            PyBuffer_Release(&buffer)
        offset = reached
        number += 1
    return number, offset


cdef Py_ssize_t _behind(list numbers, int64_t number) except -1:
    """Return how many of ascending numbers are not above one: bisect_right()."""
    cdef Py_ssize_t low = 0, high = PyList_GET_SIZE(numbers), middle
    while low < high:
        middle = (low + high) >> 1
        if number < <int64_t>numbers[middle]:
            high = middle
        else:
            low = middle + 1
    return low


def join_ranges(list starts not None, list ends not None, list runs not None):
    """Add ranges, (position, size), to those that do not touch, in order; joined with what they touch."""
    cdef int64_t start, end, size
    cdef Py_ssize_t low, high
    for start, size in runs:
        end = start + size
        low = _behind(starts, start)
        if low and <int64_t>ends[low - 1] >= start:
            low -= 1
            start = starts[low]
        high = _behind(starts, end)
        if high > low:
            end = max(end, <int64_t>ends[high - 1])
        if high == low:
            starts.insert(low, start)
            ends.insert(low, end)
            continue
        starts[low], ends[low] = start, end
        if high > low + 1:
            del starts[low + 1 : high]
            del ends[low + 1 : high]
