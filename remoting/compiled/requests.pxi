# The headers of usual requests: JSON as clients write it, read without a map.

cdef struct Row:
    int32_t topic
    int32_t queue_id
    int32_t sys_flag
    int32_t flag
    int32_t opaque
    int64_t born
    # In the run's bytes.
    int32_t header_at
    int32_t header_size
    int32_t body_at
    int32_t body_size
    # In the run's properties, without escapes.
    int32_t properties_at
    int32_t properties_size
    Indexed indexed
    # Once it is placed.
    int64_t position
    int64_t offset


cdef struct Cursor:
    Bytes at
    Bytes end


cdef struct Send:
    Row* row
    Bytes topic
    Py_ssize_t topic_size
    # Where its properties go.
    unsigned char* texts


# Reads custom fields into what is pointed to.
ctypedef bint (*Fields)(Cursor*, void*) noexcept nogil


cdef inline bint _takes(Cursor* cursor, unsigned char wanted) noexcept nogil:
    if cursor.at < cursor.end and cursor.at[0] == wanted:
        cursor.at += 1
        return True
    return False


cdef bint _text(Cursor* cursor, Bytes* begin, Py_ssize_t* size) noexcept nogil:
    """Read a JSON string of printable ASCII without escapes."""
    cdef Bytes at
    if not _takes(cursor, c'"'):
        return False
    at = cursor.at
    begin[0] = at
    while at < cursor.end and at[0] != c'"':
        if at[0] < 32 or at[0] > 126 or at[0] == c"\\":
            return False
        at += 1
    if at == cursor.end:
        return False
    size[0] = at - begin[0]
    cursor.at = at + 1
    return True


cdef bint _properties(Cursor* cursor, unsigned char* to, Py_ssize_t* size) noexcept nogil:
    r"""Read a JSON string of printable ASCII, \u0001 and \u0002; without these escapes into `to`."""
    cdef Bytes at
    cdef unsigned char* begin = to
    if not _takes(cursor, c'"'):
        return False
    at = cursor.at
    while at < cursor.end and at[0] != c'"':
        if at[0] == c"\\":
            if cursor.end - at < 6 or memcmp(at, b"\\u000", 5) != 0 or (at[5] != c"1" and at[5] != c"2"):
                return False
            to[0] = at[5] - c"0"
            at += 6
        elif at[0] < 32 or at[0] > 126:
            return False
        else:
            to[0] = at[0]
            at += 1
        to += 1
    if at == cursor.end:
        return False
    size[0] = to - begin
    cursor.at = at + 1
    return True


cdef bint _digits(Bytes at, Py_ssize_t size, int64_t most, int64_t* value) noexcept nogil:
    """Read a number as it is usually written: digits, no sign, no zeros in front."""
    cdef int64_t number = 0
    cdef Py_ssize_t i
    if size < 1 or size > 18 or (size > 1 and at[0] == c"0"):
        return False
    for i in range(size):
        if at[i] < c"0" or at[i] > c"9":
            return False
        number = number * 10 + (at[i] - c"0")
    value[0] = number
    return number <= most


cdef bint _number(Cursor* cursor, int64_t most, int64_t* value) noexcept nogil:
    cdef Bytes begin = cursor.at
    while cursor.at < cursor.end and c"0" <= cursor.at[0] <= c"9":
        cursor.at += 1
    return _digits(begin, cursor.at - begin, most, value)


cdef bint _send_fields(Cursor* cursor, void* into) noexcept nogil:
    """Read the custom fields of a send; False when one is there that is not usual, or one lacks."""
    cdef Send* send = <Send*>into
    cdef Row* row = send.row
    cdef Bytes name, text
    cdef Py_ssize_t name_size, size
    cdef int64_t value
    cdef uint32_t seen = 0, bit
    cdef unsigned char letter
    if not _takes(cursor, c"{"):
        return False
    while True:
        if not _text(cursor, &name, &name_size) or name_size != 1 or not _takes(cursor, c":"):
            return False
        letter = name[0]
        if letter < c"a" or letter > c"n":
            return False
        bit = 1u << (letter - c"a")
        if seen & bit:
            return False
        seen |= bit
        if letter == c"i":
            if not _properties(cursor, send.texts, &size):
                return False
            row.properties_size = <int32_t>size
        else:
            if not _text(cursor, &text, &size):
                return False
            if letter == c"b":
                send.topic, send.topic_size = text, size
            elif letter == c"e":
                if not _digits(text, size, INT32_MAX, &value):
                    return False
                row.queue_id = <int32_t>value
            elif letter == c"f":
                if not _digits(text, size, INT32_MAX, &value):
                    return False
                row.sys_flag = <int32_t>value
            elif letter == c"g":
                if not _digits(text, size, 9000000000000000000, &row.born):
                    return False
            elif letter == c"h":
                if not _digits(text, size, INT32_MAX, &value):
                    return False
                row.flag = <int32_t>value
            elif letter == c"d" or letter == c"l":
                if not _digits(text, size, INT32_MAX, &value):
                    return False
            elif letter == c"j":
                if not _same(text, size, "0", 1):
                    return False
            elif (letter == c"k" or letter == c"m") and not _same(text, size, "false", 5):
                return False
        if _takes(cursor, c"}"):
            break
        if not _takes(cursor, c","):
            return False
    # a to i must be there: a send has no properties only if it has no unique key.
    return seen & 0x1FF == 0x1FF


cdef bint _request(Cursor* cursor, int64_t code, int32_t* opaque, Fields fields, void* into) noexcept nogil:
    """Read the header of a usual request of a code, which is answered; its custom fields as `fields` does."""
    cdef Bytes name, text
    cdef Py_ssize_t name_size, size
    cdef int64_t value
    cdef uint32_t seen = 0, bit
    if not _takes(cursor, c"{"):
        return False
    while True:
        if not _text(cursor, &name, &name_size) or not _takes(cursor, c":"):
            return False
        if _same(name, name_size, "code", 4):
            bit = 1
            if not _number(cursor, INT32_MAX, &value) or value != code:
                return False
        elif _same(name, name_size, "extFields", 9):
            bit = 2
            if seen & 2 or not fields(cursor, into):
                return False
        elif _same(name, name_size, "flag", 4):
            bit = 4
            if not _number(cursor, INT32_MAX, &value) or value != 0:
                return False
        elif _same(name, name_size, "opaque", 6):
            bit = 8
            if not _number(cursor, INT32_MAX, &value):
                return False
            opaque[0] = <int32_t>value
        elif _same(name, name_size, "version", 7):
            bit = 16
            if not _number(cursor, INT32_MAX, &value):
                return False
        elif _same(name, name_size, "language", 8):
            bit = 32
            if not _text(cursor, &text, &size):
                return False
        elif _same(name, name_size, "serializeTypeCurrentRPC", 23):
            bit = 64
            if not _text(cursor, &text, &size):
                return False
        else:
            return False
        if seen & bit:
            return False
        seen |= bit
        if _takes(cursor, c"}"):
            break
        if not _takes(cursor, c","):
            return False
    return cursor.at == cursor.end and seen & 11 == 11


cdef bint _alnum(Bytes at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef unsigned char c
    for i in range(size):
        c = at[i]
        if not (c"0" <= c <= c"9" or c"A" <= c <= c"Z" or c"a" <= c <= c"z"):
            return False
    return size > 0
