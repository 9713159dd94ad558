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
        return -1 if count == 0 and position <= INT64_MAX else 0
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
