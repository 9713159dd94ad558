# Entries of messages as store/controlrecord.py and store/raftlog/entrycheck.py have them: made, and looked at.

cdef enum:
    # With hosts of IPv4: the record's head, the body, and what the chain runs over.
    HEAD_BYTES = 88
    CONTROL_BODY_BYTES = 52
    CHAINED_BYTES = 67
    MESSAGES = 1


cdef uint32_t _chain(uint32_t before, int64_t index, int64_t term, int64_t position, int64_t timestamp,
                     uint32_t covered, uint32_t count, uint32_t crc, int64_t commit, int64_t config) noexcept nogil:
    cdef unsigned char told[CHAINED_BYTES]
    _put64(told, index)
    _put64(told + 8, term)
    _put64(told + 16, position)
    _put64(told + 24, timestamp)
    _put32(told + 32, covered)
    _put32(told + 36, count)
    _put32(told + 40, crc)
    _put64(told + 44, commit)
    _put64(told + 52, config)
    # The CRC of no payload, no flags, and the type.
    _put32(told + 60, 0)
    told[64] = told[65] = 0
    told[66] = MESSAGES
    return _crc32_after(before, told, CHAINED_BYTES)


cdef uint32_t _covered_crc(object data, Bytes at, Py_ssize_t start, Py_ssize_t size, object crc32) except? 0:
    return _crc32(at, size) if size <= CRC_HERE_MAX else crc32(memoryview(data)[start : start + size])


def seal_entry(type control_type, object kind, bytearray data not None, int64_t index, int64_t position,
               int64_t timestamp, int64_t term, int64_t previous_term, int64_t count, int64_t commit, int64_t config,
               uint32_t before, bytes host not None, bytes tail not None, uint32_t magic, object crc32):
    """Write the control record of an entry of messages to the front of its bytes, and return it.

    `host` is of IPv4, `tail` what each control record ends with, `before` the chain of the entry before.
    """
    cdef Py_ssize_t size = HEAD_BYTES + CONTROL_BODY_BYTES + PyBytes_GET_SIZE(tail)
    cdef int64_t covered = len(data) - size
    cdef unsigned char* to = <unsigned char*>PyByteArray_AS_STRING(data)
    cdef unsigned char* body = to + HEAD_BYTES
    cdef uint32_t crc, chain
    if covered < 0 or PyBytes_GET_SIZE(host) != 8:
        raise ValueError("no room for the control record, or no host of IPv4")
    crc = _covered_crc(data, to + size, size, covered, crc32)
    chain = _chain(before, index, term, position, timestamp, covered, count, crc, commit, config)
    body[0] = 1
    body[1] = MESSAGES
    body[2] = body[3] = 0
    _put64(body + 4, term)
    _put64(body + 12, previous_term)
    _put32(body + 20, covered)
    _put32(body + 24, count)
    _put32(body + 28, crc)
    _put64(body + 32, commit)
    _put64(body + 40, config)
    _put32(body + 48, chain)
    _put32(to, size)
    _put32(to + 4, magic)
    _put32(to + 8, _crc32(body, CONTROL_BODY_BYTES) & 0x7FFFFFFF)
    _put64(to + 12, 0)
    _put64(to + 20, index)
    _put64(to + 28, position)
    _put32(to + 36, 0)
    _put64(to + 40, timestamp)
    _copy(to + 48, host)
    _put64(to + 56, timestamp)
    _copy(to + 64, host)
    _put32(to + 72, 0)
    _put64(to + 76, 0)
    _put32(to + 84, CONTROL_BODY_BYTES)
    _copy(body + CONTROL_BODY_BYTES, tail)
    return tuple.__new__(control_type, (
        index, position, size, timestamp, kind, 0, term, previous_term, covered, count, crc, commit, config, chain, b"",
    ))


def check_entry(type control_type, object kind, bytes data not None, int64_t index, int64_t term, int64_t position,
                int64_t previous_term, int64_t config, uint32_t before, bytes tail not None, Py_ssize_t fixed,
                uint32_t magic_1, uint32_t magic_2, object crc32):
    """Return the control record of a whole entry of messages, None when anything of it is not as it usually is.

    It is the entry of that index, term and position, follows an entry of `previous_term` whose chain is `before`, and
    names `config` as the last CONFIG.
    """
    cdef Py_ssize_t tail_size = PyBytes_GET_SIZE(tail)
    cdef Py_ssize_t size = HEAD_BYTES + CONTROL_BODY_BYTES + tail_size
    cdef int64_t covered = PyBytes_GET_SIZE(data) - size
    cdef Bytes at = <Bytes>PyBytes_AS_STRING(data)
    cdef Bytes body = at + HEAD_BYTES
    cdef uint32_t crc, chain
    cdef int64_t timestamp, count, commit
    if covered <= 0 or covered > INT32_MAX or _u32(at) != size or _u32(at + 4) != magic_1:
        return None
    if _u32(at + 8) != _crc32(body, CONTROL_BODY_BYTES) & 0x7FFFFFFF or _i64(at + 12) != 0:
        return None
    if _i64(at + 20) != index or _i64(at + 28) != position or _u32(at + 36) != 0 or _u32(at + 72) != 0:
        return None
    timestamp = _i64(at + 56)
    if _i64(at + 40) != timestamp or memcmp(at + 48, at + 64, 8) != 0 or _i64(at + 76) != 0:
        return None
    if _u32(at + 84) != CONTROL_BODY_BYTES or memcmp(body + CONTROL_BODY_BYTES, PyBytes_AS_STRING(tail), tail_size) != 0:
        return None
    if body[0] != 1 or body[1] != MESSAGES or body[2] or body[3]:
        return None
    count, crc, chain, commit = _u32(body + 24), _u32(body + 28), _u32(body + 48), _i64(body + 32)
    if _i64(body + 4) != term or _i64(body + 12) != previous_term or term < previous_term or _i64(body + 40) != config:
        return None
    if _u32(body + 20) != covered or count == 0 or commit >= index:
        return None
    if crc != _covered_crc(data, at + size, size, covered, crc32):
        return None
    if chain != _chain(before, index, term, position, timestamp, covered, count, crc, commit, config):
        return None
    if position > INT64_MAX - size or _covered_until(at + size, covered, position + size, count, fixed, magic_1, magic_2) >= 0:
        return None
    return tuple.__new__(control_type, (
        index, position, size, timestamp, kind, 0, term, previous_term, covered, count, crc, commit, config, chain, b"",
    ))
