# Numbers, sums and texts in bytes, and tuples: what the other parts are made of.

ctypedef const unsigned char* Bytes

cdef enum:
    # Bodies up to so many bytes are summed here; longer ones by what is handed in, which is faster from there on.
    CRC_HERE_MAX = 512
    # Rows of one run, and distinct topics.
    ROWS_MAX = 1024
    # Pulls of one run: as many commands as a slice has.
    PULLS_MAX = 64
    TOPICS_MAX = 64
    BODY_BYTES_MAX = 16384
    HEADER_BYTES_FREE = 1024
    INT32_MAX = 2147483647

cdef uint32_t _crc_table[8][256]


cdef void _make_crc_table() noexcept:
    cdef uint32_t n, k, c
    for n in range(256):
        c = n
        for k in range(8):
            c = (c >> 1) ^ (0xEDB88320u if c & 1 else 0u)
        _crc_table[0][n] = c
    for n in range(256):
        c = _crc_table[0][n]
        for k in range(1, 8):
            c = _crc_table[0][c & 0xFF] ^ (c >> 8)
            _crc_table[k][n] = c


_make_crc_table()


cdef uint32_t _crc32_after(uint32_t before, Bytes at, Py_ssize_t size) noexcept nogil:
    """CRC-32 as zlib has it, begun with that of what stands before; eight bytes a step."""
    cdef uint32_t crc = before ^ 0xFFFFFFFFu, low, high
    while size >= 8:
        low = crc ^ (at[0] | (<uint32_t>at[1] << 8) | (<uint32_t>at[2] << 16) | (<uint32_t>at[3] << 24))
        high = at[4] | (<uint32_t>at[5] << 8) | (<uint32_t>at[6] << 16) | (<uint32_t>at[7] << 24)
        crc = (
            _crc_table[7][low & 0xFF] ^ _crc_table[6][(low >> 8) & 0xFF]
            ^ _crc_table[5][(low >> 16) & 0xFF] ^ _crc_table[4][low >> 24]
            ^ _crc_table[3][high & 0xFF] ^ _crc_table[2][(high >> 8) & 0xFF]
            ^ _crc_table[1][(high >> 16) & 0xFF] ^ _crc_table[0][high >> 24]
        )
        at += 8
        size -= 8
    while size > 0:
        crc = _crc_table[0][(crc ^ at[0]) & 0xFF] ^ (crc >> 8)
        at += 1
        size -= 1
    return crc ^ 0xFFFFFFFFu


cdef inline uint32_t _crc32(Bytes at, Py_ssize_t size) noexcept nogil:
    return _crc32_after(0, at, size)


cdef inline uint32_t _u32(Bytes at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int64_t _i64(Bytes at) noexcept nogil:
    return <int64_t>((<uint64_t>_u32(at) << 32) | _u32(at + 4))


cdef inline void _put32(unsigned char* to, uint32_t value) noexcept nogil:
    to[0] = value >> 24
    to[1] = (value >> 16) & 0xFF
    to[2] = (value >> 8) & 0xFF
    to[3] = value & 0xFF


cdef inline void _put64(unsigned char* to, uint64_t value) noexcept nogil:
    _put32(to, <uint32_t>(value >> 32))
    _put32(to + 4, <uint32_t>(value & 0xFFFFFFFFu))


cdef inline unsigned char* _copy(unsigned char* to, bytes piece):
    memcpy(to, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
    return to + PyBytes_GET_SIZE(piece)


cdef inline unsigned char* _decimal(unsigned char* to, uint64_t value) noexcept nogil:
    cdef unsigned char digits[20]
    cdef int count = 0
    while True:
        digits[count] = c"0" + value % 10
        value //= 10
        count += 1
        if value == 0:
            break
    while count:
        count -= 1
        to[0] = digits[count]
        to += 1
    return to


cdef inline unsigned char* _hexadecimal(unsigned char* to, uint64_t value) noexcept nogil:
    cdef int i
    cdef unsigned char digit
    for i in range(16):
        digit = (value >> (60 - 4 * i)) & 15
        to[i] = digit + (c"0" if digit < 10 else c"A" - 10)
    return to + 16


cdef inline void _set(PyObject* made, Py_ssize_t at, object value) noexcept:
    Py_INCREF(value)
    PyTuple_SET_ITEM(<object>made, at, value)


cdef object _eleven(object kind, object v0, object v1, object v2, object v3, object v4, object v5, object v6,
                    object v7, object v8, object v9, object v10):
    """Make a named tuple of eleven as its own __new__ does, without a tuple before it."""
    cdef PyObject* made = (<PyTypeObject*>kind).tp_alloc(<PyTypeObject*>kind, 11)
    if made == NULL:
        raise MemoryError
    forget_hash(made)
    _set(made, 0, v0)
    _set(made, 1, v1)
    _set(made, 2, v2)
    _set(made, 3, v3)
    _set(made, 4, v4)
    _set(made, 5, v5)
    _set(made, 6, v6)
    _set(made, 7, v7)
    _set(made, 8, v8)
    _set(made, 9, v9)
    _set(made, 10, v10)
    whole = <object>made
    # The reference that tp_alloc gave.
    Py_DECREF(whole)
    return whole
